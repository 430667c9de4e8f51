use globset::GlobBuilder;

use super::model::Recipe;

/// Marks that stand around a path in a text without being part of it.
const AROUND_PATHS: &[char] = &[
    '`', '"', '\'', '(', ')', '[', ']', '<', '>', ',', ';', ':', '.', '!', '?', '*', '-',
];

/// Which recipes suit a kickoff, best first; those without a point are left out, and recipes with
/// equal points are in the order of their names.
///
/// A keyword that the text contains as whole words, whatever its case, gives one point, and one
/// more when it has several words. A path glob that matches a path in the text gives one.
pub fn classify(recipes: &[Recipe], kickoff: &str) -> Vec<(String, u32)> {
    let text = format!(" {} ", words(kickoff).join(" "));
    let paths: Vec<&str> = kickoff
        .split_whitespace()
        .map(|word| word.trim_matches(AROUND_PATHS))
        .filter(|word| word.contains(['/', '.']))
        .collect();
    let mut scores: Vec<(String, u32)> = recipes
        .iter()
        .map(|recipe| (recipe.name.clone(), score(recipe, &text, &paths)))
        .filter(|(_, score)| *score > 0)
        .collect();
    scores.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    scores
}

/// The runs of letters and digits of a text, in lower case.
pub(super) fn words(text: &str) -> Vec<String> {
    text.split(|character: char| !character.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect()
}

fn score(recipe: &Recipe, text: &str, paths: &[&str]) -> u32 {
    let keywords = recipe.task.keywords.iter().map(|keyword| {
        let keyword = words(keyword);
        let found = !keyword.is_empty() && text.contains(&format!(" {} ", keyword.join(" ")));
        if found {
            1 + u32::from(keyword.len() > 1)
        } else {
            0
        }
    });
    let globs = recipe.task.path_globs.iter().map(|glob| {
        let glob = GlobBuilder::new(glob).literal_separator(true).build();
        let matcher = glob.map(|glob| glob.compile_matcher());
        u32::from(matcher.is_ok_and(|matcher| paths.iter().any(|path| matcher.is_match(path))))
    });
    keywords.chain(globs).sum()
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::LazyLock;

    use super::*;
    use crate::recipe::Catalog;

    static RECIPE: LazyLock<Recipe> = LazyLock::new(|| {
        Catalog::new(None, Path::new("/nonexistent"))
            .find("review")
            .unwrap()
    });

    fn with_matches(keywords: &[&str], globs: &[&str]) -> Recipe {
        let mut recipe = RECIPE.clone();
        recipe.task.keywords = keywords.iter().map(|word| (*word).to_owned()).collect();
        recipe.task.path_globs = globs.iter().map(|glob| (*glob).to_owned()).collect();
        recipe
    }

    #[track_caller]
    fn check(keywords: &[&str], globs: &[&str], text: &str, expected: u32) {
        let mut recipe = with_matches(keywords, globs);
        recipe.name = "it".to_owned();
        let found = classify(&[recipe], text);
        let score = found.first().map_or(0, |(_, score)| *score);
        assert_eq!(score, expected, "{found:?}");
    }

    #[test]
    fn whole_words_and_paths_give_points() {
        check(&["fix", "bug"], &[], "Prefix the debugger", 0);
        check(&["fix", "bug"], &[], "Fix: the BUG.", 2);
        check(&["broken link"], &[], "a broken\nlink", 2);
        check(&["broken link"], &[], "broken, then link", 0);
        check(&[], &["src/*.rs"], "see `src/a.rs`, please", 1);
        check(&[], &["src/*.rs"], "see src/a/b.rs", 0);
        check(&[], &["**/*.rs", "docs/**"], "(src/a/b.rs) docs/x.", 2);
        check(&["größe"], &[], "Die GRÖSSE, die Größe", 1);
    }

    /// The matcher's own compile step may not fail, so no glob that is taken may be too large.
    #[test]
    fn no_glob_that_fits_makes_it_panic() {
        for unit in [
            "{",
            "{a,",
            "{a,b}",
            "**/",
            "*",
            "?",
            "[a-z]",
            "[!\u{0}-\u{10ffff}]",
            "\\",
            "{,",
            "é",
        ] {
            for end in ["", "}", "]", "/**"] {
                let mut glob = unit.repeat(100 / unit.len());
                while glob.len() + end.len() > 100 {
                    glob.pop();
                }
                let closing = end.repeat((100 - glob.len()) / end.len().max(1));
                for text in [glob.clone() + end, glob + &closing] {
                    classify(&[with_matches(&[], &[&text])], "a/b.rs");
                }
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn no_odd_glob_makes_it_panic(glob in r"[{}\[\]*?!,a/\\-]{0,40}") {
            classify(&[with_matches(&[], &[&glob])], "a/b.rs");
        }
    }

    #[test]
    fn the_best_comes_first_and_equals_by_name() {
        let mut recipes: Vec<Recipe> = Vec::new();
        for (name, words) in [
            ("b", vec!["one"]),
            ("a", vec!["one"]),
            ("c", vec!["one", "two"]),
        ] {
            let mut recipe = with_matches(&words, &[]);
            recipe.name = name.to_owned();
            recipes.push(recipe);
        }
        let expected = [
            ("c".to_owned(), 2),
            ("a".to_owned(), 1),
            ("b".to_owned(), 1),
        ];
        assert_eq!(classify(&recipes, "one two"), expected);
        assert_eq!(classify(&recipes, "three"), []);
    }

    #[test]
    fn example_kickoffs_find_their_recipe() {
        let recipes = Catalog::new(None, Path::new("/nonexistent"))
            .load_all()
            .unwrap();
        assert_eq!(recipes.len(), 5);
        for recipe in &recipes {
            let kickoff = String::from_utf8(recipe.files["example-kickoff.md"].clone()).unwrap();
            let found = classify(&recipes, &kickoff);
            let best = found.first().map(|(name, _)| name);
            assert_eq!(best, Some(&recipe.name), "{found:?}");
        }
    }
}
