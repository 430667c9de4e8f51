/// What a scalar means by the core schema of YAML 1.2.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Scalar<'t> {
    Null,
    Boolean(bool),
    Integer(i64),
    /// Also a whole number that fits in no [`i64`]; may be infinite or not a number.
    Float(f64),
    Text(&'t str),
}

/// Reads a scalar. Only a plain one can be anything but a text: `"yes"` and `'1'` are texts.
///
/// `yes`, `no`, `on` and `off` are texts too; they were booleans in YAML 1.1 only.
pub(super) fn resolve(text: &str, plain: bool) -> Scalar<'_> {
    if !plain {
        return Scalar::Text(text);
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Scalar::Null,
        "true" | "True" | "TRUE" => return Scalar::Boolean(true),
        "false" | "False" | "FALSE" => return Scalar::Boolean(false),
        ".nan" | ".NaN" | ".NAN" => return Scalar::Float(f64::NAN),
        _ => {}
    }
    let (negative, unsigned) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") {
        return Scalar::Float(if negative {
            f64::NEG_INFINITY
        } else {
            f64::INFINITY
        });
    }
    if let Some(number) = based(text, "0o", 8).or_else(|| based(text, "0x", 16)) {
        return number;
    }
    if is_digits(unsigned) {
        return text.parse().map_or_else(|_| float(text), Scalar::Integer);
    }
    if is_decimal(unsigned) {
        float(text)
    } else {
        Scalar::Text(text)
    }
}

fn based<'t>(text: &'t str, prefix: &str, radix: u32) -> Option<Scalar<'t>> {
    let digits = text.strip_prefix(prefix)?;
    let well_formed = !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(radix));
    well_formed.then(|| {
        i64::from_str_radix(digits, radix).map_or(Scalar::Float(f64::INFINITY), Scalar::Integer)
    })
}

fn float(text: &str) -> Scalar<'_> {
    text.parse().map_or(Scalar::Text(text), Scalar::Float)
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// `12`, `1.`, `.5`, `1.5`, each with or without an exponent.
fn is_decimal(text: &str) -> bool {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let exponent_fits = exponent
        .is_none_or(|exponent| is_digits(exponent.strip_prefix(['-', '+']).unwrap_or(exponent)));
    let mantissa_fits = match mantissa.split_once('.') {
        Some(("", fraction)) => is_digits(fraction),
        Some((whole, fraction)) => is_digits(whole) && (fraction.is_empty() || is_digits(fraction)),
        None => is_digits(mantissa),
    };
    exponent_fits && mantissa_fits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars_follow_the_core_schema() {
        for (text, expected) in [
            ("", Scalar::Null),
            ("~", Scalar::Null),
            ("true", Scalar::Boolean(true)),
            ("False", Scalar::Boolean(false)),
            ("yes", Scalar::Text("yes")),
            ("off", Scalar::Text("off")),
            ("12", Scalar::Integer(12)),
            ("-7", Scalar::Integer(-7)),
            ("+7", Scalar::Integer(7)),
            ("010", Scalar::Integer(10)),
            ("0o10", Scalar::Integer(8)),
            ("0x1F", Scalar::Integer(31)),
            ("0x", Scalar::Text("0x")),
            ("1.5", Scalar::Float(1.5)),
            (".5", Scalar::Float(0.5)),
            ("1e3", Scalar::Float(1000.0)),
            ("1e99", Scalar::Float(1e99)),
            ("-.inf", Scalar::Float(f64::NEG_INFINITY)),
            ("99999999999999999999", Scalar::Float(1e20)),
            ("inf", Scalar::Text("inf")),
            ("NaN", Scalar::Text("NaN")),
            ("5m", Scalar::Text("5m")),
            ("1_000", Scalar::Text("1_000")),
            ("1.2.3", Scalar::Text("1.2.3")),
            ("-", Scalar::Text("-")),
            (".", Scalar::Text(".")),
            ("é", Scalar::Text("é")),
        ] {
            assert_eq!(resolve(text, true), expected, "{text}");
        }
        assert!(matches!(resolve(".nan", true), Scalar::Float(number) if number.is_nan()));
    }

    #[test]
    fn a_quoted_scalar_is_a_text() {
        for text in ["yes", "true", "1", "", "null"] {
            assert_eq!(resolve(text, false), Scalar::Text(text));
        }
    }
}
