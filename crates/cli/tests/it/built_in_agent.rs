//! `mini-ork` as the built-in agent.

use mini_ork_testkit::{Act, Dialect, ModelServer, Script, Turn};
use serde_json::{Value, json};

use crate::support::new_env;

#[test]
fn it_works_in_the_current_directory_and_ends_with_its_last_word() {
    let env = new_env();
    let root = env.fresh("tree");
    fs_err::create_dir(&root).unwrap();
    let server = ModelServer::start(Script::conversation([
        Turn::acts([
            Act::Write {
                path: "answer".to_owned(),
                content: "42".to_owned(),
            },
            Act::Run("cat answer".to_owned()),
        ]),
        Turn::acts([Act::Finish("The answer is there.".to_owned())]),
    ]));
    let spec = json!({
        "api": "anthropic-messages",
        "base_url": server.base_url(Dialect::Messages),
        "model": "m1",
        "records": env.fresh("records"),
    });
    let agent = |token: &str| {
        env.mini_ork(["__agent", &spec.to_string()])
            .cwd(&root)
            .env("MO_AGENT_TOKEN", token)
            .stdin("Write the answer.")
            .run()
    };
    let output = agent(server.key()).expect(0);
    assert_eq!(fs_err::read_to_string(root.join("answer")).unwrap(), "42");
    let text = output.text();
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(
        last,
        json!({
            "type": "end", "ok": true, "reason": "finished", "turns": 2,
            "message": "the model says that it is done", "answer": "The answer is there.",
        })
    );

    let text = agent("another token").expect(1).text();
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&last["ok"], &last["reason"]),
        (&json!(false), &json!("api"))
    );
}
