use std::collections::HashSet;
use std::sync::Mutex;

use crate::agents::sdk_python;
use crate::{Dialect, ModelRequest, Script, TestEnv, Tokens, Trouble, Turn};

const TEXT: &str = "Grüße: it is \"done\".";

/// What a server has to play for [`sdk_works`].
pub fn sdk_script() -> Script {
    let failed = Mutex::new(HashSet::new());
    Script::each(move |request| {
        let answer = || Turn::text(TEXT).tokens(Tokens::new(11, 7).cached(5, 3));
        let middle = match request.dialect() {
            Dialect::Messages | Dialect::Chat => 4,
            Dialect::Responses => 6,
        };
        if request.contains("use the tool") {
            return match request.results() {
                [] => Turn::run("echo 'hi there'").saying("I use it."),
                results => Turn::text(results.concat()),
            };
        }
        if request.contains("be refused") {
            return Turn::trouble(Trouble::Request("this was too much".to_owned()));
        }
        if request.contains("break off") {
            return answer().cut_after(middle);
        }
        if request.contains("fail in the middle") {
            return answer().trouble_after(middle, Trouble::Capacity);
        }
        if request.contains("fail once") && failed.lock().unwrap().insert(question(request)) {
            return Turn::trouble(Trouble::Capacity).header("retry-after", "1");
        }
        answer()
    })
}

/// Uses the vendor's SDK for `dialect` in every way that the server or whatever is before it has
/// to stand: plain and streamed answers, tools, retries, refusals, streams that break.
///
/// Panics when something is not as it is with the vendor. False, and said, when the SDKs are not
/// installed.
#[track_caller]
pub fn sdk_works(env: &TestEnv, dialect: Dialect, base_url: &str, key: &str) -> bool {
    let Some(python) = sdk_python() else {
        return false;
    };
    let script = env.write("sdks.py", include_str!("sdks.py"));
    let api = match dialect {
        Dialect::Messages => "messages",
        Dialect::Chat => "chat",
        Dialect::Responses => "responses",
    };
    let output = env
        .call(python, [script.as_os_str()])
        .arg(api)
        .arg(base_url)
        .arg(key)
        .run()
        .expect(0);
    assert_eq!(output.text(), "fine\n", "{}", output.transcript());
    true
}

/// The messages of a request, which are the same when it is tried again.
fn question(request: &ModelRequest) -> String {
    let body = request.body();
    format!("{}{}{}", body["messages"], body["input"], body["stream"])
}
