use proptest::prelude::*;

use super::*;

fn list(entries: &[&str]) -> AllowList {
    AllowList::parse(entries.iter().copied()).unwrap()
}

fn permits(list: &AllowList, host: &str, port: u16) -> bool {
    Host::parse(host).is_ok_and(|host| list.permits(&host, port))
}

#[test]
fn bc_37_entries_match_hosts_and_not_what_looks_like_them() {
    let list = list(&[
        "github.com",
        "*.example.org",
        "ssh.example.net:22",
        "10.0.0.7:5432",
    ]);
    for (host, port) in [
        ("github.com", 443),
        ("GitHub.COM", 80),
        ("github.com.", 443),
        ("a.example.org", 443),
        ("a.b.example.org.", 80),
        ("ssh.example.net", 22),
        ("10.0.0.7", 5432),
        ("::ffff:10.0.0.7", 5432),
    ] {
        assert!(permits(&list, host, port), "{host}:{port}");
    }
    for (host, port) in [
        ("evilgithub.com", 443),
        ("github.com.evil.net", 443),
        ("github.co", 443),
        ("x.github.com", 443),
        ("example.org", 443),
        ("evilexample.org", 443),
        ("github.com", 22),
        ("a.example.org", 22),
        ("ssh.example.net", 443),
        ("10.0.0.7", 443),
        ("10.0.0.70", 5432),
        ("github.com..", 443),
        ("github.com@evil.net", 443),
        ("github.com\0.evil.net", 443),
    ] {
        assert!(!permits(&list, host, port), "{host}:{port}");
    }
}

#[test]
fn bc_37_a_useless_entry_is_a_mistake_with_a_remedy() {
    let problem = |text: &str| text.parse::<AllowEntry>().unwrap_err().to_string();
    assert!(problem("https://pypi.org/simple").contains("write `pypi.org`"));
    assert!(problem("*").contains("`*.example.com`"));
    assert!(problem("a.*.com").contains("first part"));
    assert!(problem("*.").contains("empty"));
    assert!(problem("10.0.0.0/8").contains("range"));
    assert!(problem("a.com:0").contains("65535"));
    assert!(problem("a.com:443x").contains("65535"));
    assert!(problem("127.1").contains("four plain numbers"));
    assert!(problem("b\u{fc}cher.example").contains("xn--"));
    assert!(problem("*.10.0.0.1").contains("number"));
    assert!(problem("").contains("empty"));
    assert!(problem(" a.com").contains("blanks"));
    assert!(problem("LocalHost.:5432").contains("write `127.0.0.1:5432`"));
    assert!(problem("localhost").contains("write `127.0.0.1:PORT`"));
    assert!(problem("0.0.0.0:80").contains("write `127.0.0.1:80`"));
    assert!(problem("[::]:80").contains("write `127.0.0.1:80`"));
    assert!(problem("224.0.0.251").contains("multicast"));
    assert!(problem("[ff02::1]:80").contains("multicast"));
    assert!(problem("255.255.255.255:9").contains("broadcast"));
    assert!(problem("[fe80::1]:80").contains("link-local"));
    for text in ["127.0.0.1:80", "[::1]:80", "169.254.1.1", "a.localhost:80"] {
        assert!(text.parse::<AllowEntry>().is_ok(), "{text}");
    }
}

#[test]
fn bc_37_an_entry_that_another_covers_is_a_mistake_wherever_it_is() {
    let mistakes = |entries: &[&str]| {
        let mistakes = AllowList::parse(entries.iter().copied()).unwrap_err();
        let texts = mistakes
            .iter()
            .map(|mistake| format!("{:?} {mistake}", mistake.index()));
        texts.collect::<Vec<_>>().join("\n")
    };
    assert_eq!(
        mistakes(&[
            "github.com:443",
            "*.a.com:22",
            "github.com",
            "b.a.com:22",
            "*.b.a.com:22"
        ]),
        "Some(0) `github.com:443` is covered by `github.com`: leave it out\n\
         Some(3) `b.a.com:22` is covered by `*.a.com:22`: leave it out\n\
         Some(4) `*.b.a.com:22` is covered by `*.a.com:22`: leave it out"
    );
    // What looks like it and is not.
    list(&[
        "a.com",
        "a.com:22",
        "*.a.com",
        "b.a.com:22",
        "*.b.a.com:22",
        "ba.com",
        "c.com:80",
        "c.com:443",
        "*.d.com:443",
        "e.d.com",
    ]);
}

#[test]
fn bc_37_a_wide_entry_is_carried_out_and_known_as_such() {
    let is_wide = |text: &str| text.parse::<AllowEntry>().unwrap().is_wide();
    for text in ["*.com", "*.test:22", "*.CO.uk.", "*.com.au"] {
        assert!(is_wide(text), "{text}");
    }
    for text in [
        "*.example.com",
        "*.example.uk",
        "co.uk",
        "*.co.example",
        "com",
        "*.a.co.uk",
    ] {
        assert!(!is_wide(text), "{text}");
    }
    assert!(permits(&list(&["*.com"]), "a.com", 443));
}

#[test]
fn bc_72_a_policy_that_makes_no_sense_is_refused_with_all_its_mistakes() {
    let mistakes = |name: &str, entries: &[&str]| {
        let mistakes = NetworkPolicy::new(name, entries.iter().copied()).unwrap_err();
        let texts: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        texts.join("\n")
    };
    assert!(mistakes("allowlist", &[]).contains("without a host"));
    assert!(mistakes("none", &["a.com"]).contains("choose `allowlist`"));
    assert!(mistakes("full", &["a.com"]).contains("choose `allowlist`"));
    assert!(mistakes("open", &[]).contains("known: full, allowlist, none"));
    let both = mistakes("allowlist", &["a.com", "*", "A.com.", "b.com:0"]);
    assert_eq!(both.lines().count(), 3, "{both}");
    assert!(both.contains("`a.com` is there twice"), "{both}");
    let many: Vec<String> = (0..1000).map(|number| format!("h{number}.com")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert!(mistakes("allowlist", &many).contains("more than 200"));
}

/// The rule in other words: the labels of the entry, from the end.
fn reference(entry: &str, host: &str) -> bool {
    let labels = |text: &str| -> Vec<String> {
        let text = text.to_lowercase();
        text.trim_end_matches('.')
            .rsplit('.')
            .map(str::to_owned)
            .collect()
    };
    let (entry, host) = (labels(entry), labels(host));
    if entry.last().is_some_and(|label| label == "*") {
        let above = &entry[..entry.len() - 1];
        host.len() > above.len() && host.starts_with(above)
    } else {
        entry == host
    }
}

proptest! {
    #[test]
    fn bc_37_what_is_covered_opens_nothing_of_its_own(
        one in "(\\*\\.)?[ab](\\.[ab]){0,2}(:80|:22)?",
        other in "(\\*\\.)?[ab](\\.[ab]){0,2}(:80|:22)?",
        host in "[ab](\\.[ab]){0,3}",
    ) {
        let (one_list, other_list) = (list(&[&one]), list(&[&other]));
        let covers = one_list.entries()[0].covers(&other_list.entries()[0]);
        for port in [22, 80, 443] {
            prop_assert!(!covers || !permits(&other_list, &host, port) || permits(&one_list, &host, port));
        }
        let opens_more = AllowList::parse([one.as_str(), other.as_str()]).is_ok();
        prop_assert!(!covers || !opens_more);
    }

    #[test]
    fn bc_37_matching_is_the_rule_in_other_words(
        entry in "(\\*\\.)?[abA]{1,2}(\\.[abB]{1,2}){0,2}\\.?",
        host in "[abA]{1,2}(\\.[abB]{1,2}){0,3}\\.?",
    ) {
        let list = list(&[&entry]);
        prop_assert_eq!(permits(&list, &host, 443), reference(&entry, &host));
    }

    #[test]
    fn what_is_taken_is_taken_again_unchanged(text in "\\PC{0,60}|(\\*\\.)?[a-z0-9.:*\\[\\]-]{0,30}") {
        if let Ok(entry) = text.parse::<AllowEntry>() {
            prop_assert_eq!(entry.to_string().parse::<AllowEntry>(), Ok(entry.clone()));
        }
    }
}
