use clap::{Args, ValueEnum};

const EXAMPLES: &str = "\
Examples:
  mini-ork costs                         day by day, the latest first
  mini-ork costs --by lane --since 7d    which agent the money of a week went to
  mini-ork costs --json | jq .last_day";

/// `mini-ork costs`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CostsArgs {
    /// What costs are added up by.
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = CostKey::Day)]
    pub(crate) by: CostKey,
    /// Only what was spent in this time up to now, such as `12h`, `7d`; everything when left out.
    #[arg(long, value_name = "AGE")]
    pub(crate) since: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What costs are added up by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CostKey {
    /// The lane that was asked.
    Lane,
    /// The recipe of the run.
    Recipe,
    /// The day, in the time zone of this machine.
    Day,
}

impl CostKey {
    /// The word that is typed for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Lane => "lane",
            Self::Recipe => "recipe",
            Self::Day => "day",
        }
    }
}
