//! Keeps prompt templates small enough to be parsed.
//!
//! The template engine works through an expression by recursion, and its own limit does not count
//! chains such as `a + a + …` or `a.b.c…`. A few thousand of them overflow the stack, which ends
//! the whole process and is no error that could be handled. So the bounds are set before the engine
//! sees the text. They are far above what a prompt needs, and far below what a thread's stack of
//! 2 MiB holds in a debug build.

/// A template that is too large, or too nested, to be parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TooLarge {
    pub(super) line: u32,
    pub(super) problem: String,
}

const LONGEST_TAG: usize = 300;
const DEEPEST_BRACKETS: usize = 16;
const MOST_TAGS: usize = 300;

/// Fails on a template that has too many tags, or too large or too nested ones.
///
/// Finds the tags exactly as the engine does. Where that would not be certain (inside `raw`) the
/// template is refused.
pub(super) fn check(template: &str) -> Result<(), TooLarge> {
    let mut rest = template;
    let mut tags = 0;
    while let Some(start) = next_tag(rest) {
        let opened = &rest[start..];
        let refuse = |problem: &str| {
            let line = line_at(template, template.len() - opened.len());
            Err(TooLarge {
                line,
                problem: problem.to_owned(),
            })
        };
        if let Some(comment) = opened.strip_prefix("{#") {
            let Some(end) = comment.find("#}") else {
                return refuse("a comment does not end");
            };
            rest = &comment[end + 2..];
            continue;
        }
        tags += 1;
        if tags > MOST_TAGS {
            return refuse("it has more than 300 tags");
        }
        let closing = if opened.starts_with("{{") {
            b"}}"
        } else {
            b"%}"
        };
        let inside = &opened[2..];
        if inside
            .trim_start_matches(['-', '+'])
            .trim_start()
            .starts_with("raw")
        {
            return refuse("`raw` is not carried out by mini-ork");
        }
        match tag_length(inside.as_bytes(), closing) {
            Ok(length) => rest = &inside[length..],
            Err(problem) => return refuse(problem),
        }
    }
    Ok(())
}

fn next_tag(text: &str) -> Option<usize> {
    let starts = |pair: &[u8]| pair[0] == b'{' && matches!(pair[1], b'{' | b'%' | b'#');
    text.as_bytes().windows(2).position(starts)
}

/// Bytes from behind the opening of a tag to behind its end.
fn tag_length(inside: &[u8], closing: &[u8]) -> Result<usize, &'static str> {
    let mut brackets = 0_usize;
    let mut quote: Option<u8> = None;
    let mut position = 0;
    while position < inside.len() {
        if position > LONGEST_TAG {
            return Err("a tag is longer than 300 bytes");
        }
        let byte = inside[position];
        match (quote, byte) {
            (Some(_), b'\\') => position += 1,
            (Some(open), _) if open == byte => quote = None,
            (Some(_), _) => {}
            (None, b'"' | b'\'') => quote = Some(byte),
            (None, _) if brackets == 0 && inside[position..].starts_with(closing) => {
                return Ok(position + closing.len());
            }
            (None, b'(' | b'[' | b'{') => brackets += 1,
            (None, b')' | b']' | b'}') => {
                brackets = brackets.checked_sub(1).ok_or("a bracket is closed twice")?;
            }
            (None, _) => {}
        }
        if brackets > DEEPEST_BRACKETS {
            return Err("brackets are nested deeper than 16 levels");
        }
        position += 1;
    }
    Err("a tag does not end")
}

fn line_at(template: &str, position: usize) -> u32 {
    let breaks = template.as_bytes()[..position]
        .iter()
        .filter(|byte| **byte == b'\n')
        .count();
    u32::try_from(breaks + 1).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::undeclared;
    use super::*;

    #[test]
    fn usual_templates_fit() {
        for template in [
            "",
            "text with { and }} and %}",
            "{{ a }}{%- if a -%}{{- b|default(\"}}\") -}}{% endif %}",
            "{# a comment with {{ a tag #}{{ {\"k\": {\"l\": [1, (2)]}}.k }}",
            "{{ 'it\\'s }}' }}",
        ] {
            assert_eq!(check(template), Ok(()), "{template}");
            assert!(undeclared("t", template).is_ok(), "{template}");
        }
    }

    #[test]
    fn what_does_not_fit_is_named_with_its_line() {
        for (template, line, problem) in [
            (
                format!("\n{{{{ a{} }}}}", " + a".repeat(100)),
                2,
                "longer than 300 bytes",
            ),
            (
                format!("\n\n{{{{ {} }}}}", "[".repeat(17)),
                3,
                "nested deeper than 16",
            ),
            ("{{ a }}\n".repeat(301), 301, "more than 300 tags"),
            ("{% raw %}{{ \"{% endraw %}".to_owned(), 1, "`raw`"),
            ("{%-  raw-%}".to_owned(), 1, "`raw`"),
            ("a\n{{ a".to_owned(), 2, "does not end"),
            ("a\n{# a".to_owned(), 2, "does not end"),
            ("{{ a) }}".to_owned(), 1, "closed twice"),
        ] {
            let error = check(&template).unwrap_err();
            assert_eq!(error.line, line, "{template}");
            assert!(
                error.problem.contains(problem),
                "{template}: {}",
                error.problem
            );
        }
    }

    /// Each of these ends the process when the bound that stops it is taken away.
    #[test]
    fn no_template_overflows_the_stack() {
        let units = [
            "(",
            "[",
            "{",
            "{a:",
            "-",
            "not ",
            "a|",
            "a.",
            "a[",
            "a(",
            "a if ",
            "a if a else ",
            "+a",
            "~a",
            " and a",
            ".a",
            "|e",
            "==a",
            " is a",
            "(1)",
            "[1]",
            " not in a",
            "**a",
            "{% if a %}",
            "{% elif a %}",
            "{% for a in b %}",
            "{% with %}",
            "{% set a %}",
            "{% filter e %}",
            "{% else %}",
            "{% autoescape a %}",
            "{{",
            "{{a}}",
            "{#",
            "{% raw %}",
            "a[",
            "'",
            "\"",
        ];
        for start in [
            "",
            "{{ ",
            "{{ a",
            "{% if ",
            "{% if a %}",
            "{% for a in ",
            "{% set a = ",
        ] {
            for unit in units {
                for times in [20, 100, 148, 290, 3000] {
                    for end in ["", " }}", " %}", "a }}", "a %}{% endif %}"] {
                        drop(undeclared(
                            "t",
                            &format!("{start}{}{end}", unit.repeat(times)),
                        ));
                    }
                }
            }
        }
    }

    #[test]
    fn the_largest_templates_that_fit_are_parsed() {
        let deep = format!("{}a{}", "a[".repeat(16), "]".repeat(16));
        let chain = format!("{deep}{}", ".a".repeat(100));
        let minus = format!("{}{deep}", "-".repeat(200));
        for expression in [deep, chain, minus] {
            let elif = format!("{{% elif {expression} %}}").repeat(298);
            let chained = format!("{{% if a %}}{elif}{{% endif %}}");
            assert_eq!(check(&chained), Ok(()));
            drop(undeclared("t", &chained));
            let open = format!("{{% if {expression} %}}").repeat(149);
            let nested = open + &"{% endif %}".repeat(149);
            assert_eq!(check(&nested), Ok(()));
            drop(undeclared("t", &nested));
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[{}%#\\[\\]()'\"\\\\a|.\\n -]{0,80}") {
            if check(&text).is_ok() {
                drop(undeclared("t", &text));
            }
        }
    }
}
