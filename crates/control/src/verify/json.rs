//! JSON objects in which every key occurs once.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Reads bytes that are one JSON object and nothing else but blanks.
///
/// A key that occurs twice is an error: readers differ in which of the values they take, so one of
/// them would be shown to a person and the other acted on.
pub(super) fn object(bytes: &[u8]) -> Result<Map<String, Value>, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = Strict.deserialize(&mut deserializer)?;
    deserializer.end()?;
    match value {
        Value::Object(map) => Ok(map),
        _ => Err(serde_json::Error::custom("not an object")),
    }
}

struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = items.next_element_seed(Self)? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if map.contains_key(&key) {
                return Err(A::Error::custom(format!("the key `{key}` occurs twice")));
            }
            let value = entries.next_value_seed(Self)?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

/// Texts of a value for people: of a list one for each element, blank ones left out.
pub(super) fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::Null => Vec::new(),
        Value::String(text) if text.trim().is_empty() => Vec::new(),
        Value::String(text) => vec![text.clone()],
        Value::Array(values) => values.iter().flat_map(texts).collect(),
        other => vec![other.to_string()],
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_key_may_occur_once_at_every_depth() {
        assert!(object(br#"{"a":{"b":1,"c":[{"b":1}]},"b":1.5}"#).is_ok());
        for text in [
            r#"{"a":1,"a":1}"#,
            r#"{"x":[{"a":1,"a":2}]}"#,
            r#"{"a":1,"\u0061":1}"#,
        ] {
            let error = object(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("the key `a` occurs twice"), "{error}");
        }
        for text in ["", "[]", "1", "{} {}", "{", "{'a':1}", "null"] {
            assert!(object(text.as_bytes()).is_err(), "{text}");
        }
        assert!(object("{\"a\":".repeat(200_000).as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn agrees_with_the_lenient_reader(text in "[{}\\[\\]\",:ab0-9 .]{0,30}") {
            if let Ok(map) = object(text.as_bytes()) {
                let lenient: Value = serde_json::from_str(&text).unwrap();
                prop_assert_eq!(Value::Object(map), lenient);
            }
        }
    }
}
