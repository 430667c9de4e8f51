//! Which requests of the inside are carried any further.

use std::net::SocketAddr;

use hyper::header::{self, HeaderMap};
use hyper::{Method, Request, StatusCode};

use super::Placeholder;
use crate::model::Api;

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Endpoint {
    /// Has the model write something.
    Answer,
    /// Counts the tokens of a request, which costs nothing.
    CountTokens,
}

/// What becomes of a request before its body is looked at.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It may go on, to this path below the base URL.
    Call(Endpoint, &'static str),
    /// It asks whether anybody is there, which is answered here.
    Greeting,
    /// It is answered here with this status and sentence.
    Refused(StatusCode, &'static str),
}

/// Judges a request by everything but its body. Who does not have the placeholder learns no more
/// than that, except for a greeting.
pub(super) fn judge<B>(
    request: &Request<B>,
    api: Api,
    address: SocketAddr,
    placeholder: &Placeholder,
) -> Verdict {
    use Verdict::{Call, Greeting, Refused};

    let uri = request.uri();
    if request.method() == Method::CONNECT || uri.scheme().is_some() || uri.authority().is_some() {
        return Refused(
            StatusCode::MISDIRECTED_REQUEST,
            "this is the gateway of one lane and no proxy",
        );
    }
    if !is_own_host(request.headers(), address) {
        return Refused(
            StatusCode::MISDIRECTED_REQUEST,
            "the host of the request is not this gateway's address",
        );
    }
    if api == Api::AnthropicMessages && request.method() == Method::HEAD && uri.path() == "/" {
        return Greeting;
    }
    if !has_placeholder(request.headers(), placeholder) {
        return Refused(
            StatusCode::UNAUTHORIZED,
            "the token is not that of this gateway",
        );
    }
    let beta = uri
        .query()
        .is_some_and(|query| query.split('&').any(|parameter| parameter == "beta=true"));
    // Compared as it is: a path that is spelled in another way is another path.
    let (endpoint, outside) = match (api, uri.path(), beta) {
        (Api::AnthropicMessages, "/v1/messages", true) => {
            (Endpoint::Answer, "/v1/messages?beta=true")
        }
        (Api::AnthropicMessages, "/v1/messages", false) => (Endpoint::Answer, "/v1/messages"),
        (Api::AnthropicMessages, "/v1/messages/count_tokens", true) => {
            (Endpoint::CountTokens, "/v1/messages/count_tokens?beta=true")
        }
        (Api::AnthropicMessages, "/v1/messages/count_tokens", false) => {
            (Endpoint::CountTokens, "/v1/messages/count_tokens")
        }
        (Api::OpenaiChat, "/v1/chat/completions", _) => (Endpoint::Answer, "/chat/completions"),
        (Api::OpenaiResponses, "/v1/responses", _) => (Endpoint::Answer, "/responses"),
        _ => {
            return Refused(
                StatusCode::NOT_FOUND,
                "this gateway has the endpoints of its lane's API alone",
            );
        }
    };
    if request.headers().contains_key(header::UPGRADE) {
        // Clients that try another protocol first go on with HTTP after this status.
        return Refused(
            StatusCode::UPGRADE_REQUIRED,
            "this gateway speaks HTTP/1.1 alone",
        );
    }
    if request.method() != Method::POST {
        return Refused(
            StatusCode::METHOD_NOT_ALLOWED,
            "this endpoint takes POST alone",
        );
    }
    Call(endpoint, outside)
}

/// A page of some other host whose name leads here must not get anywhere.
fn is_own_host(headers: &HeaderMap, address: SocketAddr) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return false;
    };
    let own = [address.to_string(), format!("localhost:{}", address.port())];
    own.iter()
        .any(|own| host.as_bytes().eq_ignore_ascii_case(own.as_bytes()))
}

fn has_placeholder(headers: &HeaderMap, placeholder: &Placeholder) -> bool {
    let bearers = headers.get_all(header::AUTHORIZATION).iter().map(|value| {
        let (scheme, token) = value
            .as_bytes()
            .split_at_checked("Bearer ".len())
            .unwrap_or_default();
        if scheme.eq_ignore_ascii_case(b"Bearer ") {
            token
        } else {
            b""
        }
    });
    let keys = headers
        .get_all("x-api-key")
        .iter()
        .map(hyper::header::HeaderValue::as_bytes);
    bearers
        .chain(keys)
        .fold(false, |found, token| found | placeholder.is(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Lane {
        api: Api,
        placeholder: Placeholder,
    }

    const ADDRESS: &str = "127.0.0.1:4242";

    impl Lane {
        fn new(api: Api) -> Self {
            Self {
                api,
                placeholder: Placeholder::new().unwrap(),
            }
        }

        fn judge(&self, method: &str, uri: &str, headers: &[(&str, &str)]) -> Verdict {
            let mut request = Request::builder().method(method).uri(uri);
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let request = request.body(()).unwrap();
            judge(
                &request,
                self.api,
                ADDRESS.parse().unwrap(),
                &self.placeholder,
            )
        }

        fn post(&self, uri: &str) -> Verdict {
            self.judge(
                "POST",
                uri,
                &[("host", ADDRESS), ("x-api-key", self.placeholder.expose())],
            )
        }

        fn status(&self, method: &str, uri: &str, headers: &[(&str, &str)]) -> u16 {
            match self.judge(method, uri, headers) {
                Verdict::Refused(status, _) => status.as_u16(),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn each_api_has_its_endpoints_alone() {
        let messages = Lane::new(Api::AnthropicMessages);
        let chat = Lane::new(Api::OpenaiChat);
        let responses = Lane::new(Api::OpenaiResponses);
        let call = Verdict::Call;
        for (lane, uri, verdict) in [
            (
                &messages,
                "/v1/messages",
                call(Endpoint::Answer, "/v1/messages"),
            ),
            (
                &messages,
                "/v1/messages?x=1&beta=true&key=word",
                call(Endpoint::Answer, "/v1/messages?beta=true"),
            ),
            (
                &messages,
                "/v1/messages?beta=true%26key=word",
                call(Endpoint::Answer, "/v1/messages"),
            ),
            (
                &messages,
                "/v1/messages/count_tokens?beta=true",
                call(Endpoint::CountTokens, "/v1/messages/count_tokens?beta=true"),
            ),
            (
                &chat,
                "/v1/chat/completions?key=word",
                call(Endpoint::Answer, "/chat/completions"),
            ),
            (
                &responses,
                "/v1/responses",
                call(Endpoint::Answer, "/responses"),
            ),
        ] {
            assert_eq!(lane.post(uri), verdict, "{uri}");
        }
        for (lane, uri) in [
            (&messages, "/v1/chat/completions"),
            (&messages, "/v1/messages/"),
            (&messages, "/v1/messages/batches"),
            (&messages, "//v1/messages"),
            (&messages, "/v1/../v1/messages"),
            (&messages, "/v1/messages/../files"),
            (&messages, "/v1/%6dessages"),
            (&messages, "/v1%2fmessages"),
            (&messages, "/V1/messages"),
            (&messages, "/v1/messages;x"),
            (&messages, "/"),
            (&chat, "/chat/completions"),
            (&chat, "/v1/responses"),
            (&chat, "/v1/models"),
            (&responses, "/v1/messages"),
            (&responses, "/v1/responses/resp_1"),
        ] {
            let verdict = lane.post(uri);
            assert!(
                matches!(verdict, Verdict::Refused(StatusCode::NOT_FOUND, _)),
                "{uri}: {verdict:?}"
            );
        }
    }

    #[test]
    fn other_hosts_schemes_and_methods_are_refused() {
        let lane = Lane::new(Api::AnthropicMessages);
        let token = lane.placeholder.expose();
        let key = ("x-api-key", token);
        let host = ("host", ADDRESS);
        for (status, method, uri, headers) in [
            (421, "CONNECT", "api.example.com:443", &[host, key][..]),
            (
                421,
                "POST",
                "http://127.0.0.1:4242/v1/messages",
                &[host, key],
            ),
            (
                421,
                "POST",
                "https://api.example.com/v1/messages",
                &[host, key],
            ),
            (421, "POST", "/v1/messages", &[key]),
            (
                421,
                "POST",
                "/v1/messages",
                &[("host", "evil.example"), key],
            ),
            (
                421,
                "POST",
                "/v1/messages",
                &[("host", "127.0.0.1:4243"), key],
            ),
            (
                421,
                "POST",
                "/v1/messages",
                &[host, ("host", "evil.example"), key],
            ),
            (405, "GET", "/v1/messages", &[host, key]),
            (405, "PUT", "/v1/messages", &[host, key]),
            (
                426,
                "GET",
                "/v1/messages",
                &[host, key, ("upgrade", "websocket")],
            ),
            (421, "HEAD", "/", &[("host", "evil.example")]),
        ] {
            assert_eq!(
                lane.status(method, uri, headers),
                status,
                "{method} {uri} {headers:?}"
            );
        }
        assert_eq!(lane.judge("HEAD", "/", &[host]), Verdict::Greeting);
        let local = ("host", "LocalHost:4242");
        assert!(matches!(
            lane.judge("POST", "/v1/messages", &[local, key]),
            Verdict::Call(..)
        ));
    }

    #[test]
    fn bc_47_without_its_own_placeholder_nothing_is_told() {
        let lane = Lane::new(Api::OpenaiChat);
        let other = Lane::new(Api::OpenaiChat);
        let host = ("host", ADDRESS);
        let path = "/v1/chat/completions";
        let right = format!("Bearer {}", lane.placeholder.expose());
        let small = format!("bearer {}", lane.placeholder.expose());
        let wrong = format!("Bearer {}", other.placeholder.expose());
        let basic = format!("Basic {}", lane.placeholder.expose());
        for headers in [
            &[host][..],
            &[host, ("authorization", &wrong)],
            &[host, ("authorization", &basic)],
            &[host, ("authorization", lane.placeholder.expose())],
            &[host, ("authorization", "Bearer ")],
            &[host, ("authorization", "")],
            &[host, ("x-api-key", &right)],
            &[host, ("cookie", lane.placeholder.expose())],
        ] {
            assert_eq!(lane.status("POST", path, headers), 401, "{headers:?}");
            assert_eq!(
                lane.status("GET", "/v1/models", headers),
                401,
                "{headers:?}"
            );
        }
        for header in [
            ("authorization", right.as_str()),
            ("authorization", &small),
            ("x-api-key", lane.placeholder.expose()),
        ] {
            let verdict = lane.judge("POST", path, &[host, header]);
            assert!(matches!(verdict, Verdict::Call(..)), "{header:?}");
        }
    }
}
