use mini_ork_testkit::{Dialect, ModelServer, TestEnv, sdk_script, sdk_works};

fn works(dialect: Dialect) {
    let env = TestEnv::new("no program of ours");
    let server = ModelServer::start(sdk_script());
    if sdk_works(&env, dialect, &server.base_url(dialect), server.key()) {
        // Each kind of answer twice, what was tried again counted twice, and those that fail.
        assert!(server.requests().len() >= 15);
    }
}

#[test]
fn the_anthropic_sdk_finds_what_it_expects() {
    works(Dialect::Messages);
}

#[test]
fn the_openai_sdk_finds_what_it_expects_in_chat_completions() {
    works(Dialect::Chat);
}

#[test]
fn the_openai_sdk_finds_what_it_expects_in_responses() {
    works(Dialect::Responses);
}
