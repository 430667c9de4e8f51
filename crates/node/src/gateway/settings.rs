use std::path::PathBuf;
use std::time::Duration;

use super::{BaseUrl, Placeholder};
use crate::model::Api;
use crate::redact::Redactor;
use crate::secret::Secret;

/// What a gateway is to do. Dropping it forgets the key.
#[derive(Debug)]
pub struct GatewaySettings {
    /// The form in which the lane talks; everything else is refused.
    pub api: Api,
    /// Where the model is.
    pub base_url: BaseUrl,
    /// The real key.
    pub key: Secret,
    /// What the agent has in its place.
    pub placeholder: Placeholder,
    /// Takes secrets out of what comes back. The key is registered with it before anything else.
    pub redactor: Redactor,
    /// Who may vouch for the vendor's name.
    pub roots: Roots,
    /// Bounds of numbers and times.
    pub limits: GatewayLimits,
}

/// The certificate authorities that are trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots {
    /// Those of the system.
    pub system: bool,
    /// Those in this file besides, in the form PEM.
    pub extra_pem: Option<PathBuf>,
}

/// Bounds of what passes through a gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayLimits {
    /// Most requests of the client; each counts once, however often it is tried.
    pub max_calls: u64,
    /// Most connections of the client at a time; the next one waits. Each has at most one call, so
    /// this bounds the descriptors, and the calls that are paid at the same time.
    pub max_connections: usize,
    /// Longest request, in bytes.
    pub max_request_bytes: u64,
    /// Longest wait for the head of an answer, from the moment that the request is sent. It is
    /// there for answers without a stream, whose head comes when all is thought.
    pub first_byte: Duration,
    /// Longest silence inside an answer, and inside a request of the client.
    pub stall: Duration,
    /// How often, and when, a call is tried again.
    pub retry: RetryPolicy,
}

impl Default for GatewayLimits {
    fn default() -> Self {
        Self {
            max_calls: 500,
            // Several gateways share the 1024 descriptors that a process usually has. Agents make
            // a few calls at a time.
            max_connections: 64,
            max_request_bytes: 32 << 20,
            first_byte: Duration::from_secs(600),
            stall: Duration::from_secs(120),
            retry: RetryPolicy::default(),
        }
    }
}

/// When a call is tried again that may succeed a moment later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Tries in all, at least one.
    pub attempts: u32,
    /// Before the second try; doubled for each after it.
    pub first_delay: Duration,
    /// The delay grows no longer than this.
    pub longest_delay: Duration,
    /// A vendor that asks for a longer pause is not tried again.
    pub longest_retry_after: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts: 3,
            first_delay: Duration::from_secs(5),
            longest_delay: Duration::from_secs(45),
            longest_retry_after: Duration::from_secs(90),
        }
    }
}

impl RetryPolicy {
    /// How long to wait after the `tried`th try, the first being 1; nothing when that was the last.
    pub(super) fn delay(&self, tried: u32, retry_after: Option<Duration>) -> Option<Duration> {
        if tried >= self.attempts {
            return None;
        }
        if let Some(asked) = retry_after {
            return (asked <= self.longest_retry_after).then_some(asked);
        }
        let factor = 2_u32.saturating_pow(tried.saturating_sub(1));
        let delay = self.first_delay.saturating_mul(factor);
        Some(delay.min(self.longest_delay))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_grows_up_to_a_bound() {
        let seconds = Duration::from_secs;
        let policy = RetryPolicy {
            attempts: 7,
            ..RetryPolicy::default()
        };
        let delays: Vec<_> = (1..=7).map(|tried| policy.delay(tried, None)).collect();
        let expected = [5, 10, 20, 40, 45, 45].map(|number| Some(seconds(number)));
        assert_eq!(delays[..6], expected);
        assert_eq!(delays[6], None);
        assert_eq!(policy.delay(1, Some(seconds(90))), Some(seconds(90)));
        assert_eq!(policy.delay(1, Some(seconds(0))), Some(seconds(0)));
        assert_eq!(policy.delay(1, Some(seconds(91))), None);
        let endless = RetryPolicy {
            attempts: u32::MAX,
            ..policy
        };
        assert_eq!(endless.delay(u32::MAX - 1, None), Some(seconds(45)));
    }
}
