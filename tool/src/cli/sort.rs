// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The orders of `top`.

/// By what rows are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Sort {
    /// Exits per second.
    #[default]
    Rate,
    /// Exits since the VM started.
    Count,
    /// Mean cost.
    Mean,
    /// Share of the time.
    Share,
    /// The reason's name.
    Reason,
}

impl Sort {
    const ALL: [Sort; 5] = [Sort::Rate, Sort::Count, Sort::Mean, Sort::Share, Sort::Reason];

    /// The next one, round and round.
    pub fn next(self) -> Self {
        let place = Self::ALL.iter().position(|sort| *sort == self).unwrap_or(0);
        Self::ALL[(place + 1) % Self::ALL.len()]
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Sort::Rate => "rate",
            Sort::Count => "count",
            Sort::Mean => "mean",
            Sort::Share => "share",
            Sort::Reason => "reason",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_orders_follow_each_other_round_and_round() {
        let round = std::iter::successors(Some(Sort::Rate), |sort| Some(sort.next())).nth(5);
        assert_eq!(round, Some(Sort::Rate));
    }
}
