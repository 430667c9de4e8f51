//! Ports that are led out, one after the other.

use crate::bench::Bench;

/// As many agents as a sandbox can listen for begin and end in it, and nothing is left of them.
pub(crate) async fn ports_are_given_back(bench: &Bench) {
    const FIRST: u16 = 20_000;
    for port in FIRST..FIRST + 500 {
        drop(bench.workspace.lead(port).await.unwrap());
    }
    let kept = bench.workspace.lead(FIRST).await.unwrap();
    let table = bench.say("cat /proc/net/tcp").await;
    // `NUMBER: LOCAL REMOTE STATE`, where addresses have their port in hexadecimal digits, and 0A
    // is to listen.
    let listened = table.lines().filter_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let (_, port) = fields.next()?.split_once(':')?;
        (fields.nth(1)? == "0A").then(|| u16::from_str_radix(port, 16).ok())?
    });
    let listened: Vec<u16> = listened
        .filter(|port| (FIRST..FIRST + 500).contains(port))
        .collect();
    assert_eq!(listened, [FIRST], "{table}");
    drop(kept);
}
