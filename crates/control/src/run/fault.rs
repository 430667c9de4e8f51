//! Named points at which a test can kill the control plane, to prove that nothing is lost there.
//!
//! In a release build a point does nothing.

/// Every point, in the order in which an ordinary run passes them.
pub const FAULT_POINTS: &[&str] = &[
    "directory-made",
    "plan-written",
    "run-recorded",
    "opened",
    "worktree-ready",
    "prompt-written",
    "node-started",
    "process-started",
    "process-ended",
    "snapshot-taken",
    "node-ended",
    "round-started",
    "commit-made",
    "branch-made",
    "published",
    "work-kept",
    "report-written",
    "closed",
];

/// The points of a clean, in order.
pub const CLEAN_FAULT_POINTS: &[&str] = &["clean-rescued", "clean-set-aside", "clean-forgotten"];

/// At which point, and at which passage of it, the process ends itself with SIGKILL.
#[derive(Debug, Default)]
pub struct FaultPoint {
    at: Option<(String, std::sync::atomic::AtomicU32)>,
}

impl FaultPoint {
    /// `NAME` or `NAME:COUNT` (the count-th passage, from 1); `None` for no fault.
    pub fn parse(text: Option<&str>) -> Self {
        let Some(text) = text else {
            return Self::default();
        };
        let (name, count) = text
            .split_once(':')
            .and_then(|(name, count)| Some((name, count.parse().ok()?)))
            .unwrap_or((text, 1));
        Self {
            at: Some((name.to_owned(), count.into())),
        }
    }

    /// Passes the point `name`.
    pub fn hit(&self, name: &str) {
        debug_assert!(
            FAULT_POINTS.contains(&name) || CLEAN_FAULT_POINTS.contains(&name),
            "unknown fault point {name}"
        );
        if !cfg!(debug_assertions) {
            return;
        }
        let Some((at, left)) = &self.at else { return };
        if at == name && left.fetch_sub(1, std::sync::atomic::Ordering::Relaxed) == 1 {
            let own = rustix::process::getpid();
            let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
        }
    }
}
