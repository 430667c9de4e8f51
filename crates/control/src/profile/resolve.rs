use mini_ork_node::egress::{NetworkPolicy, PolicyMistake};

use super::{RawProfile, ResolvedProfile};
use crate::yaml::{Mistake, Mistakes};

impl RawProfile {
    /// The profile, when all that it says can be carried out. All mistakes at once.
    pub fn resolve(mut self) -> Result<ResolvedProfile, Mistakes> {
        let network = self.policy();
        Mistakes::check(self.mistakes)?;
        Ok(ResolvedProfile {
            image: self.image,
            network,
            env: self.env,
            cpus: self.cpus,
            memory: self.memory,
        })
    }

    /// A list is looked at only with `network: allowlist`; that of one file may be hidden by the
    /// policy of another.
    fn policy(&mut self) -> Option<super::Placed<NetworkPolicy>> {
        let Some(network) = &self.network else {
            if let Some(domains) = &self.allow_domains {
                self.mistakes.push(Mistake::new(
                    &domains.file,
                    domains.line,
                    "allow_domains",
                    "needs a policy that looks at it",
                    "write `network: allowlist`",
                ));
            }
            return None;
        };
        let domains = self.allow_domains.as_ref();
        let domains = domains.filter(|_| network.value == "allowlist");
        let entries = domains.map_or(&[][..], |domains| domains.value.as_slice());
        let texts = entries.iter().map(|entry| entry.value.as_str());
        match NetworkPolicy::new(network.value, texts) {
            Ok(policy) => Some(network.with(policy)),
            Err(mistakes) => {
                for mistake in mistakes {
                    // A list of which nothing could be read is told already.
                    if mistake == PolicyMistake::NoEntry && domains.is_some() {
                        continue;
                    }
                    let entry = mistake.index().and_then(|index| entries.get(index));
                    let (file, line, key) = match entry {
                        Some(entry) => (&entry.file, entry.line, "allow_domains"),
                        None => (&network.file, network.line, "network"),
                    };
                    let remedy = match entry {
                        Some(_) => "an entry is `host`, `host:port` or `*.host`",
                        None => "add `allow_domains: [host, …]`",
                    };
                    let problem = mistake.to_string();
                    let mistake = Mistake::new(file, line, key, &problem, remedy);
                    self.mistakes.push(mistake);
                }
                None
            }
        }
    }
}
