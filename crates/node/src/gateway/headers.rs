//! Which headers pass, in either direction.

use hyper::HeaderMap;
use hyper::header::{self, HeaderName, HeaderValue};

use super::Placeholder;
use crate::model::Api;
use crate::redact::Redactor;
use crate::secret::Secret;

/// Concern one connection and never what is behind it.
const HOP_BY_HOP: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Say who asks or who pays, have some servers take the request for another one, or are set anew.
const NOT_SENT: &[&str] = &[
    "accept-encoding",
    "api-key",
    "authorization",
    "cf-connecting-ip",
    "client-ip",
    "content-length",
    "cookie",
    "cookie2",
    "expect",
    "forwarded",
    "host",
    "openai-organization",
    "openai-project",
    "true-client-ip",
    "via",
    "x-api-key",
    "x-auth-token",
    "x-client-ip",
    "x-goog-api-key",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-real-ip",
    "x-rewrite-url",
];
const NOT_SENT_BEGINNINGS: &[&str] = &["proxy-", "x-forwarded-", "x-original-", "sec-"];

/// Would send the client elsewhere, or leave something with it.
const NOT_RETURNED: &[&str] = &[
    "alt-svc",
    "content-length",
    "content-location",
    "link",
    "location",
    "refresh",
    "set-cookie",
    "set-cookie2",
    "www-authenticate",
];

/// The header with the real key. Its value is not shown by any `Debug`.
pub(super) fn key_header(api: Api, key: &Secret) -> Option<(HeaderName, HeaderValue)> {
    let (name, text) = match api {
        Api::AnthropicMessages => (
            HeaderName::from_static("x-api-key"),
            zeroize::Zeroizing::new(key.expose().to_owned()),
        ),
        Api::OpenaiChat | Api::OpenaiResponses => (
            header::AUTHORIZATION,
            zeroize::Zeroizing::new(format!("Bearer {}", key.expose())),
        ),
    };
    let mut value = HeaderValue::from_str(&text).ok()?;
    value.set_sensitive(true);
    Some((name, value))
}

/// What goes to the vendor, without the key. A header that holds the placeholder goes nowhere,
/// whatever its name.
pub(super) fn to_upstream(inside: &HeaderMap, placeholder: &Placeholder) -> HeaderMap {
    let named = named_in_connection(inside);
    let placeholder = placeholder.expose().as_bytes();
    let mut outside = HeaderMap::with_capacity(inside.len());
    for (name, value) in inside {
        let text = name.as_str();
        let stays = HOP_BY_HOP.contains(&text)
            || NOT_SENT.contains(&text)
            || NOT_SENT_BEGINNINGS
                .iter()
                .any(|beginning| text.starts_with(beginning))
            || named.iter().any(|other| other == text)
            || contains(value.as_bytes(), placeholder);
        if !stays {
            outside.append(name.clone(), value.clone());
        }
    }
    outside.insert(
        header::ACCEPT_ENCODING,
        HeaderValue::from_static("identity"),
    );
    outside
}

/// What goes back to the agent. A header in which a secret is found is left out.
pub(super) fn to_inside(outside: &HeaderMap, redactor: &Redactor) -> HeaderMap {
    let named = named_in_connection(outside);
    let mut inside = HeaderMap::with_capacity(outside.len());
    for (name, value) in outside {
        let text = name.as_str();
        let stays = HOP_BY_HOP.contains(&text)
            || text.starts_with("proxy-")
            || NOT_RETURNED.contains(&text)
            || named.iter().any(|other| other == text)
            || redactor.redact(value.as_bytes()) != value.as_bytes()
            // Names are compared without their case, but a key is no name.
            || redactor.redact(text.as_bytes()) != text.as_bytes();
        if !stays {
            inside.append(name.clone(), value.clone());
        }
    }
    inside
}

fn named_in_connection(headers: &HeaderMap) -> Vec<String> {
    headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect()
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack
        .windows(needle.len())
        .any(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, HeaderValue::from_str(value).unwrap());
        }
        map
    }

    fn names(map: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<_> = map.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn what_an_api_needs_passes_and_who_asks_does_not() {
        let placeholder = Placeholder::new().unwrap();
        let inside = map(&[
            ("authorization", "Bearer x"),
            ("x-api-key", "x"),
            ("cookie", "a=b"),
            ("proxy-authorization", "x"),
            ("proxy-anything", "x"),
            ("x-forwarded-for", "10.0.0.1"),
            ("forwarded", "for=10.0.0.1"),
            ("openai-organization", "org-other"),
            ("x-original-url", "/v1/files"),
            ("x-http-method-override", "DELETE"),
            ("via", "1.1 x"),
            ("host", "x"),
            ("expect", "100-continue"),
            ("connection", "close, X-Private"),
            ("x-private", "1"),
            ("upgrade", "h2c"),
            ("content-length", "3"),
            ("accept-encoding", "gzip"),
            ("x-mine", placeholder.expose()),
            ("anthropic-version", "2023-06-01"),
            ("anthropic-beta", "a"),
            ("anthropic-beta", "b"),
            ("x-stainless-lang", "js"),
            ("content-type", "application/json"),
        ]);
        let outside = to_upstream(&inside, &placeholder);
        assert_eq!(
            names(&outside),
            [
                "accept-encoding",
                "anthropic-beta",
                "anthropic-version",
                "content-type",
                "x-stainless-lang"
            ]
        );
        assert_eq!(outside["accept-encoding"], "identity");
        assert_eq!(outside.get_all("anthropic-beta").iter().count(), 2);
    }

    #[test]
    fn bc_43_a_header_with_a_secret_does_not_come_back() {
        let redactor = Redactor::new();
        redactor.register(b"sentinel-key").unwrap();
        let outside = map(&[
            ("content-type", "application/json"),
            ("request-id", "r1"),
            ("x-debug", "key=sentinel-key"),
            ("x-debug-base64", "c2VudGluZWwta2V5"),
            ("x-sentinel-key", "1"),
            ("set-cookie", "a=b"),
            ("location", "https://elsewhere.example"),
            ("connection", "x-hop"),
            ("x-hop", "1"),
            ("transfer-encoding", "chunked"),
        ]);
        let inside = to_inside(&outside, &redactor);
        assert_eq!(names(&inside), ["content-type", "request-id"]);
    }

    #[test]
    fn each_api_has_its_header_and_none_shows_the_key() {
        let key = Secret::new(b"sentinel-key".to_vec()).unwrap();
        let (name, value) = key_header(Api::AnthropicMessages, &key).unwrap();
        assert_eq!(
            (name.as_str(), &value),
            ("x-api-key", &HeaderValue::from_static("sentinel-key"))
        );
        let (name, value) = key_header(Api::OpenaiChat, &key).unwrap();
        assert_eq!(name.as_str(), "authorization");
        assert_eq!(value, "Bearer sentinel-key");
        assert!(!format!("{value:?}").contains("sentinel"));
        let bad = Secret::new(b"two\nlines".to_vec()).unwrap();
        assert!(key_header(Api::OpenaiChat, &bad).is_none());
    }
}
