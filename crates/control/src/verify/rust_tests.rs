//! Splits a Rust file into its code and its `#[cfg(test)]` modules.

use std::collections::BTreeMap;
use std::ops::Range;

use super::rust_tokens::{Kind, Token, pairs, tokens};

/// Why a file cannot be split without guessing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unsplit {
    /// A literal or comment has no end, or brackets do not match.
    NotRust,
    /// Tests stand between the code.
    LooseTests,
    /// Two test modules have one name, so that it is unclear which replaces which.
    SameName,
}

impl Unsplit {
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::NotRust => "it is not well-formed Rust",
            Self::LooseTests => "it has tests outside of a `#[cfg(test)]` module at its top level",
            Self::SameName => "two of its test modules have the same name",
        }
    }
}

/// A Rust file and where its test modules are.
#[derive(Debug)]
pub(super) struct Split<'a> {
    text: &'a str,
    /// In the order of the file; with attributes and doc comments.
    modules: Vec<(&'a str, Range<usize>)>,
}

impl<'a> Split<'a> {
    /// Finds the modules `#[cfg(test)] mod name { … }` and `#[cfg(test)] mod name;` at the top
    /// level of a file.
    pub(super) fn of(text: &'a str) -> Result<Self, Unsplit> {
        let tokens = tokens(text).ok_or(Unsplit::NotRust)?;
        let pairs = pairs(&tokens).ok_or(Unsplit::NotRust)?;
        let modules = Parser {
            text,
            tokens: &tokens,
            pairs: &pairs,
        }
        .modules()?;
        let split = Self { text, modules };
        if split.tests().len() != split.modules.len() {
            return Err(Unsplit::SameName);
        }
        Ok(split)
    }

    /// The test modules by name.
    pub(super) fn tests(&self) -> BTreeMap<&'a str, &'a str> {
        self.modules
            .iter()
            .map(|(name, span)| (*name, &self.text[span.clone()]))
            .collect()
    }

    /// This file's code with the test modules of `other` in place of its own.
    pub(super) fn with_tests_of(&self, other: &Split<'_>) -> String {
        let mut tests = other.tests();
        let mut joined = String::new();
        let mut position = 0;
        for (name, span) in &self.modules {
            joined.push_str(&self.text[position..span.start]);
            joined.push_str(tests.remove(name).unwrap_or(""));
            position = span.end;
        }
        joined.push_str(&self.text[position..]);
        for (name, span) in &other.modules {
            if tests.contains_key(name) {
                joined.push('\n');
                joined.push_str(&other.text[span.clone()]);
                joined.push('\n');
            }
        }
        joined
    }
}

struct Parser<'a, 'b> {
    text: &'a str,
    tokens: &'b [Token],
    /// For each opening bracket the index of its end; unused for other tokens.
    pairs: &'b [usize],
}

impl<'a> Parser<'a, '_> {
    fn modules(&self) -> Result<Vec<(&'a str, Range<usize>)>, Unsplit> {
        let mut modules = Vec::new();
        let mut index = 0;
        // First token of the attributes and doc comments in front of an item.
        let mut prefix: Option<usize> = None;
        let mut is_test = false;
        while index < self.tokens.len() {
            if self.kind(index) == Some(Kind::Doc) {
                prefix.get_or_insert(index);
                index += 1;
                continue;
            }
            if let Some(end) = self.attribute(index) {
                if self.is_test_function(index) {
                    return Err(Unsplit::LooseTests);
                }
                prefix.get_or_insert(index);
                is_test |= self.is_cfg_test(index);
                index = end + 1;
                continue;
            }
            let module = self.module(index);
            if let (Some((name, end)), true) = (module, is_test) {
                let start = prefix.unwrap_or(index);
                modules.push((name, self.tokens[start].start..self.tokens[end].end));
                index = end + 1;
            } else {
                let end = match self.kind(index) {
                    Some(Kind::Open(_)) => self.pairs[index],
                    _ => index,
                };
                if self.has_tests(index..end) {
                    return Err(Unsplit::LooseTests);
                }
                index = end + 1;
            }
            prefix = None;
            is_test = false;
        }
        Ok(modules)
    }

    /// The end of the attribute `#[…]` at `index`.
    fn attribute(&self, index: usize) -> Option<usize> {
        let open = index + 1;
        let found =
            self.kind(index) == Some(Kind::Mark('#')) && self.kind(open) == Some(Kind::Open('['));
        found.then(|| self.pairs[open])
    }

    /// `#[test]`, `#[tokio::test(…)]`, `#[rstest]`
    fn is_test_function(&self, attribute: usize) -> bool {
        let path = (attribute + 2..)
            .take_while(|&index| matches!(self.kind(index), Some(Kind::Word | Kind::Mark(':'))));
        let last = path.last().map_or("", |index| self.word(index));
        matches!(last, "test" | "rstest" | "test_case")
    }

    /// `#[cfg(test)]` or `#[cfg(all(test, …))]`
    fn is_cfg_test(&self, attribute: usize) -> bool {
        let inside = attribute + 4;
        if self.word(attribute + 2) != "cfg" || self.kind(attribute + 3) != Some(Kind::Open('(')) {
            return false;
        }
        if self.word(inside) == "test" {
            return self.kind(inside + 1) == Some(Kind::Close('('));
        }
        if self.word(inside) != "all" || self.kind(inside + 1) != Some(Kind::Open('(')) {
            return false;
        }
        let mut index = inside + 2;
        let end = self.pairs[inside + 1];
        while index < end {
            if let Some(Kind::Open(_)) = self.kind(index) {
                index = self.pairs[index];
            } else if self.word(index) == "test" {
                return true;
            }
            index += 1;
        }
        false
    }

    /// Name and last token of the module that begins at `index`.
    fn module(&self, mut index: usize) -> Option<(&'a str, usize)> {
        if self.word(index) == "pub" {
            index += 1;
            if self.kind(index) == Some(Kind::Open('(')) {
                index = self.pairs[index] + 1;
            }
        }
        if self.word(index) != "mod" || self.kind(index + 1) != Some(Kind::Word) {
            return None;
        }
        let name = self.word(index + 1);
        match self.kind(index + 2)? {
            Kind::Mark(';') => Some((name, index + 2)),
            Kind::Open('{') => Some((name, self.pairs[index + 2])),
            _ => None,
        }
    }

    fn has_tests(&self, range: Range<usize>) -> bool {
        range.into_iter().any(|index| {
            let Some(end) = self.attribute(index) else {
                return false;
            };
            let is_module = self.is_cfg_test(index) && self.module(end + 1).is_some();
            is_module || self.is_test_function(index)
        })
    }

    fn kind(&self, index: usize) -> Option<Kind> {
        self.tokens.get(index).map(|token| token.kind)
    }

    /// The word at `index`; empty for any other token.
    fn word(&self, index: usize) -> &'a str {
        match self.tokens.get(index) {
            Some(token) if token.kind == Kind::Word => &self.text[token.start..token.end],
            _ => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(text: &str) -> Result<Vec<&str>, Unsplit> {
        Split::of(text).map(|split| split.modules.into_iter().map(|(name, _)| name).collect())
    }

    const TRICKY: &str = r####"#!/usr/bin/env run
//! Inner: #[cfg(test)] mod no {
#![allow(unused)]
const A: &str = "#[cfg(test)] mod no { \" ";
const B: &str = r#"#[cfg(test)] mod "no" { "#;
const C: &[u8] = br"mod no {";
const D: char = '{';
const E: char = '\'';
fn f<'a>(x: &'a str) -> &'a str { /* } /* nested } */ */ x } // }
#[cfg(not(test))]
mod real { pub const R: u8 = b'}'; }
#[cfg(all(unix, not(test)))]
mod other {}
#[cfg(test)]
use std::fmt;

/// About the tests.
#[expect(dead_code)]
#[cfg(test)]
mod tests {
    fn brace() -> &'static str { "}" }
    #[test]
    fn a() {}
}

fn between() {}

#[cfg(all(test, unix))]
#[path = "x_tests.rs"]
pub(crate) mod x_tests;
"####;

    #[test]
    fn test_modules_are_found_wherever_they_stand() {
        let split = Split::of(TRICKY).unwrap();
        let tests = split.tests();
        assert_eq!(
            tests.keys().copied().collect::<Vec<_>>(),
            ["tests", "x_tests"]
        );
        assert!(
            tests["tests"].starts_with("/// About") && tests["tests"].ends_with("fn a() {}\n}")
        );
        assert!(
            tests["x_tests"].starts_with("#[cfg(all") && tests["x_tests"].ends_with("x_tests;")
        );
    }

    #[test]
    fn the_code_keeps_its_place_and_takes_the_other_tests() {
        let base = "fn f() -> u8 { 1 }\n\n#[cfg(test)]\nmod tests { /* old */ }\n\n#[cfg(test)]\nmod gone {}\nfn g() {}\n";
        let other =
            "fn f() -> u8 { 2 }\n#[cfg(test)]\nmod extra;\n#[cfg(test)]\nmod tests { /* new */ }\n";
        let (base, other) = (Split::of(base).unwrap(), Split::of(other).unwrap());
        assert_eq!(
            base.with_tests_of(&other),
            "fn f() -> u8 { 1 }\n\n#[cfg(test)]\nmod tests { /* new */ }\n\n\nfn g() {}\n\n#[cfg(test)]\nmod extra;\n"
        );
        let tricky = Split::of(TRICKY).unwrap();
        assert_eq!(tricky.with_tests_of(&tricky), TRICKY);
    }

    #[test]
    fn what_cannot_be_split_says_why() {
        let table = [
            ("#[test]\nfn a() {}", Unsplit::LooseTests),
            (
                "#[tokio::test(flavor = \"x\")]\nasync fn a() {}",
                Unsplit::LooseTests,
            ),
            ("mod a { #[cfg(test)] mod tests {} }", Unsplit::LooseTests),
            (
                "macro_rules! m { () => { #[test] fn a() {} } }",
                Unsplit::LooseTests,
            ),
            (
                "#[cfg(test)] mod a {}\n#[cfg(test)] mod a {}",
                Unsplit::SameName,
            ),
            ("fn a() {", Unsplit::NotRust),
            ("fn a() ]", Unsplit::NotRust),
            ("const A: &str = \"", Unsplit::NotRust),
            ("const A: &str = r##\"\"#;", Unsplit::NotRust),
            ("/* /* */", Unsplit::NotRust),
        ];
        for (text, expected) in table {
            assert_eq!(names(text), Err(expected), "{text}");
        }
        assert_eq!(names(""), Ok(vec![]));
        assert_eq!(names("#[cfg(feature = \"test\")] mod a {}"), Ok(vec![]));
        assert_eq!(names("let r#mod = r; 'outer: loop {}"), Ok(vec![]));
    }

    proptest! {
        #[test]
        fn any_text_is_split_or_refused(
            text in "(#\\[cfg\\(test\\)\\]|mod a|mod b| |\\{|\\}|;|\"|'|r#|//|/\\*|\\*/|///|\n|\\\\|#|!|\\[|\\]|pub|\\(|\u{e9}){0,25}"
        ) {
            if let Ok(split) = Split::of(&text) {
                prop_assert_eq!(split.with_tests_of(&split), text.clone());
            }
        }
    }
}
