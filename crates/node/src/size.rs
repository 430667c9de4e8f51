//! Amounts of bytes, as people write them.

use std::ops::RangeInclusive;

/// How much memory a sandbox may have: nothing starts with less, and no machine has more.
const MEMORY: RangeInclusive<u64> = (16 << 20)..=(16 << 40);
/// What [`parse_memory`] takes, for a remedy.
pub const MEMORY_SYNTAX: &str =
    "a whole number and its unit, from 16M to 16T, such as 500M, 4G or 4GiB";

/// A whole number of bytes, or one with a unit: `K`, `M`, `G` or `T`, in either case, as `Gi`, `GB`
/// and `GiB` as well. All count by 1024, as container engines do.
pub fn parse_size(text: &str) -> Option<u64> {
    let end = text
        .find(|character: char| !character.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "ki" | "kb" | "kib" => 10,
        "m" | "mi" | "mb" | "mib" => 20,
        "g" | "gi" | "gb" | "gib" => 30,
        "t" | "ti" | "tb" | "tib" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// A size that a sandbox can have as its memory: from 16M to 16T.
pub fn parse_memory(text: &str) -> Option<u64> {
    parse_size(text).filter(|bytes| MEMORY.contains(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_written_as_for_a_container_engine() {
        for (text, size) in [
            ("0", 0),
            ("17", 17),
            ("17b", 17),
            ("2k", 2 << 10),
            ("512m", 512 << 20),
            ("512MB", 512 << 20),
            ("8g", 8 << 30),
            ("8G", 8 << 30),
            ("1Gi", 1 << 30),
            ("4GB", 4 << 30),
            ("4GiB", 4 << 30),
            ("4gib", 4 << 30),
            ("2T", 2 << 40),
        ] {
            assert_eq!(parse_size(text), Some(size), "{text}");
        }
    }

    #[test]
    fn bc_72_what_is_no_size_is_refused() {
        for text in [
            "",
            " ",
            "-1",
            "+1",
            "-1G",
            "1.5G",
            "G",
            "GiB",
            "1e3",
            "1e99",
            "NaN",
            "inf",
            "0x10",
            "4 G",
            "4GG",
            "4iB",
            "4P",
            "4Gib4",
            "99999999999T",
            "99999999999999999999",
            "４G",
        ] {
            assert_eq!(parse_size(text), None, "{text}");
        }
        for text in ["0", "1", "15M", "16383k", "17T", "16385G"] {
            assert_eq!(parse_memory(text), None, "{text}");
        }
        assert_eq!(parse_memory("16m"), Some(16 << 20));
        assert_eq!(parse_memory("16TiB"), Some(16 << 40));
    }

    proptest::proptest! {
        #[test]
        fn bc_72_no_text_is_a_panic_and_no_size_wraps(
            text in ".{0,12}",
            digits in "[0-9]{1,22}",
            unit in "[KMGTkmgtbBi]{0,3}",
        ) {
            let _ = parse_size(&text);
            if let Some(size) = parse_size(&format!("{digits}{unit}")) {
                let number: u64 = digits.parse().unwrap();
                proptest::prop_assert!(size >= number && (number == 0 || size % number == 0));
            }
        }
    }
}
