use proptest::prelude::*;
use serde_json::json;

use super::super::conversation::{ToolCall, ToolResult};
use super::*;

fn render(turns: &[Turn]) -> String {
    format!("{turns:?}")
}

fn step(number: usize, length: usize) -> [Turn; 2] {
    let id = format!("call_{number}");
    let content = "x".repeat(length);
    let arguments = json!({"content": content, "lines": [content]}).to_string();
    [
        Turn::Assistant(vec![
            Part::Opaque(json!({"signed": "y".repeat(length)})),
            Part::Opaque("z".repeat(length).into()),
            Part::Call(ToolCall::new(&id, "write", &arguments)),
        ]),
        Turn::Results(
            vec![ToolResult {
                id,
                content,
                is_error: false,
            }],
            vec!["a note".to_owned()],
        ),
    ]
}

fn conversation(lengths: &[usize]) -> Vec<Turn> {
    let steps = lengths.iter().enumerate();
    std::iter::once(Turn::User("the task".to_owned()))
        .chain(steps.flat_map(|(number, length)| step(number, *length)))
        .collect()
}

/// Everything but what may be shortened.
fn skeleton(turns: &[Turn]) -> Vec<Turn> {
    let mut turns = turns.to_vec();
    for turn in &mut turns {
        match turn {
            Turn::User(_) => {}
            Turn::Results(results, _) => {
                results.iter_mut().for_each(|result| result.content.clear());
            }
            Turn::Assistant(parts) => {
                parts.retain_mut(|part| match part {
                    Part::Text(_) => true,
                    Part::Call(call) => {
                        let values = call.input.values_mut();
                        values.for_each(|value| *value = Value::Null);
                        true
                    }
                    Part::Opaque(_) => false,
                });
            }
        }
    }
    turns
}

#[test]
fn what_fits_is_left_alone() {
    let mut turns = conversation(&[5000, 5000]);
    let before = turns.clone();
    let fitted = Window::new(100_000, 1000).fit(&mut turns, render).unwrap();
    assert_eq!(fitted.request, render(&before));
    assert!(!fitted.shortened);
    assert_eq!(turns, before);
}

#[test]
fn the_oldest_is_shortened_first_and_the_latest_last() {
    let mut turns = conversation(&[9000; 10]);
    let before = turns.clone();
    let window = Window::new(100_000, 1000);
    assert!(window.fit(&mut turns, render).unwrap().shortened);
    assert_ne!(turns[1], before[1]);
    assert_eq!(
        turns[before.len() - SPARED..],
        before[before.len() - SPARED..]
    );
    // Then there is room for some turns.
    let again = turns.clone();
    turns.extend(step(10, 9000));
    assert!(!window.fit(&mut turns, render).unwrap().shortened);
    assert_eq!(turns[..again.len()], again);
}

#[test]
fn what_the_vendor_counts_moves_the_limit_within_reason() {
    let fits = |tokens_for_ten_bytes| {
        let mut window = Window::new(10_000, 1000);
        window.learn(10, tokens_for_ten_bytes);
        let mut turns = conversation(&[6000]);
        window
            .fit(&mut turns, render)
            .map(|fitted| fitted.shortened)
    };
    assert_eq!(fits(2), Some(false));
    assert_eq!(fits(4), Some(true));
    assert_eq!(fits(10), None);
    assert_eq!(fits(u64::MAX), None);
    assert_eq!(fits(1), Some(false));
    // Nothing is learned from a count of nothing.
    assert_eq!(fits(0), fits(4));
}

#[test]
fn a_task_that_is_too_long_is_told() {
    let mut turns = vec![Turn::User("x".repeat(100_000))];
    let before = turns.clone();
    assert_eq!(Window::new(10_000, 1000).fit(&mut turns, render), None);
    assert_eq!(turns, before);
}

proptest! {
    #[test]
    fn pairs_and_the_task_stay(
        lengths in proptest::collection::vec(0_usize..30_000, 0..12),
        tokens in 2000_u64..60_000,
        counted in 0_u64..30,
    ) {
        let mut turns = conversation(&lengths);
        let before = turns.clone();
        let mut window = Window::new(tokens, tokens / 4);
        window.learn(20, counted);
        let fitted = window.fit(&mut turns, render);
        prop_assert_eq!(skeleton(&turns), skeleton(&before));
        if let Some(fitted) = fitted {
            let most = (window.tokens as f64 / window.tokens_for_byte) as usize;
            prop_assert!(fitted.request.len() <= most);
            prop_assert_eq!(fitted.request, render(&turns));
            prop_assert_eq!(fitted.shortened, turns != before);
        }
    }
}
