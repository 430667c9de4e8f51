use serde::Serialize;

/// Measured values of one thing, in the order in which they were measured.
#[derive(Debug, Clone, Default)]
pub(super) struct Samples(Vec<f64>);

/// What is told of them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Summary {
    pub(super) count: usize,
    pub(super) min: f64,
    pub(super) median: f64,
    pub(super) max: f64,
}

impl Samples {
    pub(super) fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// Zeros when nothing was measured.
    pub(super) fn summary(&self) -> Summary {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |index: usize| sorted.get(index).copied().unwrap_or_default();
        let (count, half) = (sorted.len(), sorted.len() / 2);
        let median = match count % 2 {
            0 => f64::midpoint(at(half.saturating_sub(1)), at(half)),
            _ => at(half),
        };
        Summary {
            count,
            min: at(0),
            median,
            max: at(count.saturating_sub(1)),
        }
    }

    pub(super) fn median(&self) -> f64 {
        self.summary().median
    }

    pub(super) fn extend(&mut self, values: &[f64]) {
        self.0.extend_from_slice(values);
    }

    /// The value below which a `share` of all lies; zero when nothing was measured.
    pub(super) fn at(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let index = (sorted.len() as f64 * share) as usize;
        let last = sorted.len().saturating_sub(1);
        sorted.get(index.min(last)).copied().unwrap_or_default()
    }

    /// How many times the other each is that was measured in the same turn.
    pub(super) fn ratios(&self, other: &Self) -> Self {
        let pairs = self.0.iter().zip(&other.0);
        Self(
            pairs
                .filter(|(_, other)| **other > 0.0)
                .map(|(own, other)| own / other)
                .collect(),
        )
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_an_even_number_lies_between_two() {
        let samples: Samples = [4.0, 1.0, 3.0, 2.0].into_iter().collect();
        let summary = samples.summary();
        assert_eq!(summary.count, 4);
        assert_eq!((summary.min, summary.median, summary.max), (1.0, 2.5, 4.0));
        let odd: Samples = [9.0, 1.0, 5.0].into_iter().collect();
        assert_eq!(odd.median(), 5.0);
        assert_eq!(Samples::default().summary().count, 0);
        assert_eq!(Samples::default().median(), 0.0);
    }

    #[test]
    fn a_share_lies_below() {
        let samples: Samples = (0..200).rev().map(f64::from).collect();
        assert_eq!((samples.at(0.0), samples.at(0.99)), (0.0, 198.0));
        assert_eq!((samples.at(1.0), Samples::default().at(0.5)), (199.0, 0.0));
    }

    #[test]
    fn ratios_compare_what_was_measured_in_one_turn() {
        let own: Samples = [2.0, 9.0, 1.0].into_iter().collect();
        let other: Samples = [1.0, 3.0, 0.0].into_iter().collect();
        let ratios = own.ratios(&other).summary();
        assert_eq!((ratios.count, ratios.min, ratios.max), (2, 2.0, 3.0));
    }
}
