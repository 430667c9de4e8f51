use std::path::{Component, Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};

/// What a `.dockerignore` leaves out of a context.
#[derive(Debug, Default)]
pub(super) struct Ignored {
    rules: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    pattern: GlobMatcher,
    /// It takes back what an earlier one has left out.
    is_exception: bool,
}

impl Ignored {
    /// Reads one pattern for each line. The error names the pattern.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut rules = Vec::new();
        for line in text.lines() {
            let line = line.trim_start_matches('\u{feff}');
            if line.starts_with('#') || line.trim().is_empty() {
                continue;
            }
            let line = line.trim();
            let (is_exception, pattern) = match line.strip_prefix('!') {
                Some(rest) => (true, rest.trim()),
                None => (false, line),
            };
            let pattern = normal(pattern);
            if pattern.is_empty() {
                continue;
            }
            let glob = GlobBuilder::new(&pattern)
                .literal_separator(true)
                .backslash_escape(true)
                .build()
                .map_err(|error| format!("`{line}` is no pattern: {}", error.kind()))?;
            rules.push(Rule {
                pattern: glob.compile_matcher(),
                is_exception,
            });
        }
        Ok(Self { rules })
    }

    /// Whether `path`, from the context's directory on, is left out: the last rule counts that
    /// names it or a directory above it.
    pub(super) fn matches(&self, path: &Path) -> bool {
        let above = || {
            let above = path.ancestors();
            above.filter(|path| !path.as_os_str().is_empty())
        };
        let last = self
            .rules
            .iter()
            .rev()
            .find(|rule| above().any(|path| rule.pattern.is_match(path)));
        last.is_some_and(|rule| !rule.is_exception)
    }

    /// Whether something below a directory that is left out may be in.
    pub(super) fn has_exceptions(&self) -> bool {
        self.rules.iter().any(|rule| rule.is_exception)
    }
}

/// A pattern from the context's directory on, without `.`, `..` and a slash at either end.
fn normal(pattern: &str) -> String {
    let mut normal = PathBuf::new();
    for component in Path::new(pattern).components() {
        match component {
            Component::Normal(name) => normal.push(name),
            Component::ParentDir => {
                normal.pop();
            }
            _ => {}
        }
    }
    normal.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_last_rule_counts() {
        let text = "# comment\n*.md\n!README.md\n/build/\n**/*.log\ntarget/*\n!target/keep\n a ";
        let ignored = Ignored::parse(text).unwrap();
        for (path, expected) in [
            ("x.md", true),
            ("docs/x.md", false),
            ("README.md", false),
            ("build", true),
            ("build/deep/file", true),
            ("src/build", false),
            ("a.log", true),
            ("src/deep/a.log", true),
            ("target", false),
            ("target/x", true),
            ("target/keep", false),
            ("target/keep/x", false),
            ("a", true),
            ("b", false),
        ] {
            assert_eq!(ignored.matches(Path::new(path)), expected, "{path}");
        }
        assert!(ignored.has_exceptions());
        let error = Ignored::parse("a[\n").unwrap_err();
        assert!(error.starts_with("`a[` is no pattern"), "{error}");
    }

    proptest! {
        #[test]
        fn no_list_is_a_panic(text in "[a!*?./\\[\\]{}\\\\#\n -]{0,40}", path in "[a/.]{0,10}") {
            if let Ok(ignored) = Ignored::parse(&text) {
                ignored.matches(Path::new(&path));
            }
        }
    }
}
