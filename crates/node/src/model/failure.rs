use serde::{Deserialize, Serialize};

/// Why a call to a model failed: what can be done about it follows from this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// Too many calls at the moment: 429 that is no quota, 503, 529.
    Capacity,
    /// The vendor could not be reached, or did not answer in time.
    Network,
    /// The vendor failed: 5xx.
    Server,
    /// The answer broke off, stalled, or was not of the API's form.
    Stream,
    /// The key was refused: 401, 403.
    Auth,
    /// The account has no money or allowance left.
    Quota,
    /// The request was refused: 400, 404, 413, 422.
    Request,
    /// The vendor refused to answer for reasons of safety.
    Safety,
    /// A budget would be passed.
    Budget,
    /// The lane made more calls than a node may.
    Calls,
}

impl FailureClass {
    /// Whether the same call may succeed a moment later.
    pub fn is_transient(self) -> bool {
        matches!(
            self,
            Self::Capacity | Self::Network | Self::Server | Self::Stream
        )
    }

    /// Whether another vendor, or another account, may do what this one did not.
    pub fn is_curable_elsewhere(self) -> bool {
        self.is_transient() || self == Self::Quota
    }
}

/// A failed call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallFailure {
    /// What kind of failure.
    pub class: FailureClass,
    /// One sentence for a person, free of secrets.
    pub message: String,
}
