//! Numbers that people type. None of them may be zero, negative, infinite or half understood.

use std::time::Duration;

use mini_ork_node::size;

use crate::error::CommandError;

/// A year: more is a slip of the finger.
const LONGEST: u64 = 366 * 24 * 3600;

/// `90s`, `30m`, `2h`, `7d`, or whole seconds.
pub(crate) fn parse_duration(name: &str, text: &str) -> Result<Duration, CommandError> {
    let wrong = || {
        CommandError::usage(format!("{name} `{text}` is not a time"))
            .hint("write a whole number and its unit, such as 90s, 30m, 2h or 7d")
    };
    let text = text.trim();
    let (digits, factor) = match text.char_indices().last() {
        Some((at, 's')) => (&text[..at], 1),
        Some((at, 'm')) => (&text[..at], 60),
        Some((at, 'h')) => (&text[..at], 3600),
        Some((at, 'd')) => (&text[..at], 24 * 3600),
        _ => (text, 1),
    };
    let number = whole_number(digits).ok_or_else(wrong)?;
    let seconds = number
        .checked_mul(factor)
        .filter(|seconds| *seconds <= LONGEST)
        .ok_or_else(wrong)?;
    Ok(Duration::from_secs(seconds))
}

/// A positive amount of US dollars.
pub(crate) fn parse_money(name: &str, text: &str) -> Result<f64, CommandError> {
    text.trim()
        .trim_start_matches('$')
        .parse::<f64>()
        .ok()
        .filter(|amount| amount.is_finite() && *amount > 0.0 && *amount < 1e9)
        .ok_or_else(|| {
            CommandError::usage(format!("{name} `{text}` is not an amount of money"))
                .hint("write US dollars as a number above 0, such as 2.50")
        })
}

/// `500K`, `500M`, `10G`, `10GiB`, or bytes.
pub(crate) fn parse_size(name: &str, text: &str) -> Result<u64, CommandError> {
    size::parse_size(text.trim()).ok_or_else(|| {
        CommandError::usage(format!("{name} `{text}` is not a size"))
            .hint("write a whole number and its unit, such as 500M or 10G")
    })
}

/// The memory of a sandbox.
pub(crate) fn parse_memory(name: &str, text: &str) -> Result<u64, CommandError> {
    size::parse_memory(text.trim()).ok_or_else(|| {
        CommandError::usage(format!("{name} is `{text}`"))
            .hint(format!("set it to {}", size::MEMORY_SYNTAX))
    })
}

/// A whole number above 0, written in digits alone.
pub(crate) fn parse_count(name: &str, text: &str, most: u64) -> Result<u64, CommandError> {
    whole_number(text.trim())
        .filter(|number| (1..=most).contains(number))
        .ok_or_else(|| {
            CommandError::usage(format!("{name} is `{text}`"))
                .hint(format!("set it to a whole number from 1 to {most}"))
        })
}

fn whole_number(digits: &str) -> Option<u64> {
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bc_72_garbage_is_refused() {
        for text in [
            "-1",
            "NaN",
            "1e99",
            "5x",
            "",
            " ",
            "m",
            "1.5h",
            "99999999999999999999",
            "9999999d",
        ] {
            assert!(parse_duration("--deadline", text).is_err(), "{text}");
        }
        for text in ["0", "-1", "NaN", "inf", "1e99", "", "free"] {
            assert!(parse_money("--budget", text).is_err(), "{text}");
        }
        for text in ["0", "-1", "+4", "4.0", "1e3", "", "1000"] {
            assert!(
                parse_count("MINI_ORK_MAX_PARALLEL", text, 256).is_err(),
                "{text}"
            );
        }
        for text in ["-1G", "1.5G", "", "G", "99999999999T"] {
            assert!(parse_size("--max-size", text).is_err(), "{text}");
            assert!(parse_memory("MO_SANDBOX_MEMORY", text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_people_write_is_understood() {
        assert_eq!(parse_duration("d", "90").unwrap(), Duration::from_secs(90));
        assert_eq!(
            parse_duration("d", "30m").unwrap(),
            Duration::from_secs(1800)
        );
        assert_eq!(parse_duration("d", "0d").unwrap(), Duration::ZERO);
        assert_eq!(parse_money("b", "$2.50").unwrap().to_string(), "2.5");
        assert_eq!(parse_size("s", "10G").unwrap(), 10 << 30);
        assert_eq!(parse_memory("m", " 8gb ").unwrap(), 8 << 30);
        assert_eq!(parse_count("n", "4", 256).unwrap(), 4);
    }
}
