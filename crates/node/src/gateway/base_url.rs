use std::fmt;
use std::net::IpAddr;

use hyper::Uri;
use hyper::http::uri::{Authority, PathAndQuery, Scheme};

use crate::model::Api;

/// Where a lane's model is: the only place to which its gateway talks.
///
/// `https://HOST[:PORT][/PREFIX]`, or `http` to this machine. For Anthropic's API the prefix is
/// what comes before `/v1`; for OpenAI's it includes it, as in the vendors' own settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrl {
    scheme: Scheme,
    authority: Authority,
    /// Without a slash at its end.
    prefix: String,
}

/// Why a text is not a base URL. The text is not in here: people put keys in URLs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BaseUrlError {
    /// Not of the form.
    #[error("a base URL is like `https://HOST/PATH`")]
    NotUrl,
    /// It has a user name or a password.
    #[error("a base URL has no user and no password: the key is a secret with a name")]
    Credentials,
    /// It has a query or a fragment.
    #[error("a base URL has no `?` and no `#`")]
    Query,
    /// Without TLS the key could be read on the way.
    #[error("a base URL is `https`; `http` is for this machine alone (`127.0.0.1`, `localhost`)")]
    Plain,
    /// The path has parts that servers read differently.
    #[error("the path of a base URL has letters, digits and `-._~/` alone, and no `..`")]
    Path,
    /// The version is added by the client.
    #[error("the base URL of an Anthropic API ends before `/v1`")]
    Version,
}

impl BaseUrl {
    /// Takes `text` as the base URL of an API of the form `api`.
    pub fn parse(text: &str, api: Api) -> Result<Self, BaseUrlError> {
        if text.contains(['?', '#']) {
            return Err(BaseUrlError::Query);
        }
        let parts = text
            .parse::<Uri>()
            .map_err(|_| BaseUrlError::NotUrl)?
            .into_parts();
        let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
            return Err(BaseUrlError::NotUrl);
        };
        if authority.as_str().contains('@') {
            return Err(BaseUrlError::Credentials);
        }
        if authority.host().is_empty() || has_bad_port(&authority) {
            return Err(BaseUrlError::NotUrl);
        }
        let is_plain = scheme == Scheme::HTTP;
        if !is_plain && scheme != Scheme::HTTPS {
            return Err(BaseUrlError::Plain);
        }
        if is_plain && !is_loopback(authority.host()) {
            return Err(BaseUrlError::Plain);
        }
        let path = parts.path_and_query;
        let path = path.as_ref().map_or("", PathAndQuery::path);
        let prefix = path.trim_end_matches('/').to_owned();
        if !is_plain_path(&prefix) {
            return Err(BaseUrlError::Path);
        }
        if api == Api::AnthropicMessages && prefix.ends_with("/v1") {
            return Err(BaseUrlError::Version);
        }
        Ok(Self {
            scheme,
            authority,
            prefix,
        })
    }

    /// The host, with its port when it is not the usual one.
    pub fn host(&self) -> &str {
        self.authority.as_str()
    }

    pub(super) fn is_https(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }

    /// The address of `path`, which begins with a slash and may end with a query.
    pub(super) fn join(&self, path: &str) -> Result<Uri, hyper::http::Error> {
        Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(format!("{}{path}", self.prefix))
            .build()
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{}://{}{}",
            self.scheme, self.authority, self.prefix
        )
    }
}

fn has_bad_port(authority: &Authority) -> bool {
    let port = authority
        .as_str()
        .strip_prefix(authority.host())
        .unwrap_or_default();
    !port.is_empty() && authority.port_u16().is_none_or(|port| port == 0)
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => host.eq_ignore_ascii_case("localhost"),
    }
}

fn is_plain_path(path: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    path.bytes().all(plain)
        && path
            .split('/')
            .skip(1)
            .all(|part| !matches!(part, "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn joined(text: &str, api: Api, path: &str) -> String {
        let base = BaseUrl::parse(text, api).unwrap();
        base.join(path).unwrap().to_string()
    }

    #[test]
    fn requests_go_below_the_base() {
        let messages = Api::AnthropicMessages;
        let chat = Api::OpenaiChat;
        for (base, api, path, whole) in [
            (
                "https://api.example.com",
                messages,
                "/v1/messages?beta=true",
                "https://api.example.com/v1/messages?beta=true",
            ),
            (
                "https://h.example:8443/a/b/",
                messages,
                "/v1/messages",
                "https://h.example:8443/a/b/v1/messages",
            ),
            (
                "https://h.example/v1",
                chat,
                "/chat/completions",
                "https://h.example/v1/chat/completions",
            ),
            (
                "http://127.0.0.1:11434/v1",
                chat,
                "/chat/completions",
                "http://127.0.0.1:11434/v1/chat/completions",
            ),
            ("http://[::1]:80/v1", chat, "/x", "http://[::1]:80/v1/x"),
        ] {
            assert_eq!(joined(base, api, path), whole);
        }
    }

    #[test]
    fn what_would_lose_the_key_is_refused() {
        for (text, error) in [
            ("", BaseUrlError::NotUrl),
            ("api.example.com", BaseUrlError::NotUrl),
            ("/v1", BaseUrlError::NotUrl),
            ("https://", BaseUrlError::NotUrl),
            ("https://h:x", BaseUrlError::NotUrl),
            ("https://h:0", BaseUrlError::NotUrl),
            ("https://h:99999", BaseUrlError::NotUrl),
            ("https://h /", BaseUrlError::NotUrl),
            ("ftp://h", BaseUrlError::Plain),
            ("http://api.example.com", BaseUrlError::Plain),
            ("http://127.0.0.1.example.com", BaseUrlError::Plain),
            ("http://10.0.0.1", BaseUrlError::Plain),
            ("http://0.0.0.0", BaseUrlError::Plain),
            ("https://user:word@h", BaseUrlError::Credentials),
            ("http://127.0.0.1@h.example", BaseUrlError::Credentials),
            ("https://h?key=x", BaseUrlError::Query),
            ("https://h/#x", BaseUrlError::Query),
            ("https://h/a/../b", BaseUrlError::Path),
            ("https://h/a//b", BaseUrlError::Path),
            ("https://h/%2e%2e/b", BaseUrlError::Path),
            ("https://h/v1", BaseUrlError::Version),
            ("https://h/v1/", BaseUrlError::Version),
        ] {
            let result = BaseUrl::parse(text, Api::AnthropicMessages);
            assert_eq!(result, Err(error), "{text}");
        }
    }

    proptest! {
        #[test]
        fn the_host_of_a_request_is_that_of_the_base(
            text in "https?://[a-z0-9@:/?#.%\\[\\]\\\\-]{1,30}",
        ) {
            if let Ok(base) = BaseUrl::parse(&text, Api::OpenaiChat) {
                let uri = base.join("/responses").unwrap();
                prop_assert_eq!(uri.authority().unwrap().as_str(), base.host());
                prop_assert!(!base.host().contains('@'));
                prop_assert!(uri.path().ends_with("/responses"));
                prop_assert!(base.is_https() || is_loopback(uri.host().unwrap()));
            }
        }
    }
}
