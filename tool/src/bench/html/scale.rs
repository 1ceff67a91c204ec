// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From figures to places on an axis, in per cent of its length.

use super::number;

/// A grid line.
#[derive(Debug, PartialEq)]
pub struct Tick {
    /// Where it is.
    pub at: String,
    /// What stands there; nothing at a minor one.
    pub label: String,
}

/// An axis on which each power of ten takes the same room.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Logarithmic {
    low: i32,
    high: i32,
}

impl Logarithmic {
    /// The powers of ten around all figures; one decade at least.
    pub fn around(figures: impl IntoIterator<Item = f64>) -> Self {
        let positive = figures.into_iter().filter(|figure| *figure > 0.0 && figure.is_finite());
        let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
        for figure in positive {
            (least, most) = (least.min(figure), most.max(figure));
        }
        if most == 0.0 {
            return Logarithmic { low: 0, high: 1 };
        }
        let low = least.log10().floor() as i32;
        Logarithmic { low, high: (most.log10().ceil() as i32).max(low + 1) }
    }

    /// Where a figure is.
    pub fn place(self, figure: f64) -> f64 {
        let decades = f64::from(self.high - self.low);
        ((figure.max(f64::MIN_POSITIVE).log10() - f64::from(self.low)) / decades * 100.0).clamp(0.0, 100.0)
    }

    /// The powers of ten, and between them twice and five times each.
    pub fn ticks(self) -> Vec<Tick> {
        let tick = |power: i32, times: f64| {
            let figure = times * 10f64.powi(power);
            let label = if times == 1.0 { number::count(figure) } else { String::new() };
            Tick { at: number::length(self.place(figure)), label }
        };
        let mut ticks: Vec<Tick> =
            (self.low..self.high).flat_map(|power| [1.0, 2.0, 5.0].map(|times| tick(power, times))).collect();
        ticks.push(tick(self.high, 1.0));
        ticks
    }
}

/// An axis that begins at zero, and on which equal steps take equal room.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Linear {
    step: f64,
    steps: u32,
}

impl Linear {
    /// From zero to the next round number above all figures.
    pub fn to(figures: impl IntoIterator<Item = f64>) -> Self {
        let most = figures.into_iter().filter(|figure| figure.is_finite()).fold(1.0_f64, f64::max);
        let power = 10f64.powf((most / 4.0).log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|times| times * power * 4.0 >= most);
        let step = step.unwrap_or(10.0) * power;
        Linear { step, steps: ((most / step).ceil() as u32).max(1) }
    }

    /// Where a figure is.
    pub fn place(self, figure: f64) -> f64 {
        (figure / (self.step * f64::from(self.steps)) * 100.0).clamp(0.0, 100.0)
    }

    /// Zero and each step.
    pub fn ticks(self) -> Vec<Tick> {
        let figures = (0..=self.steps).map(|index| f64::from(index) * self.step);
        figures
            .map(|figure| Tick { at: number::length(self.place(figure)), label: number::count(figure) })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(ticks: &[Tick]) -> Vec<String> {
        let labels = ticks.iter().map(|tick| tick.label.replace('\u{202f}', ""));
        labels.filter(|label| !label.is_empty()).collect()
    }

    #[test]
    fn decades_around_the_figures() {
        let scale = Logarithmic::around([48.0, 6154.0]);
        assert_eq!(labels(&scale.ticks()), ["10", "100", "1000", "10000"]);
        assert_eq!((scale.place(10.0), scale.place(10_000.0)), (0.0, 100.0));
        assert!((scale.place(100.0) - 33.333).abs() < 0.01);
    }

    #[test]
    fn odd_figures_have_an_axis_too() {
        assert_eq!(Logarithmic::around([]), Logarithmic { low: 0, high: 1 });
        assert_eq!(Logarithmic::around([10.0]), Logarithmic { low: 1, high: 2 });
        assert_eq!(Logarithmic::around([0.0, f64::NAN, f64::INFINITY]), Logarithmic { low: 0, high: 1 });
        assert_eq!(Logarithmic::around([48.0]).place(0.0), 0.0);
        assert_eq!(labels(&Linear::to([]).ticks()).first().map(String::as_str), Some("0"));
    }

    #[test]
    fn round_steps_from_zero() {
        assert_eq!(labels(&Linear::to([146.0]).ticks()), ["0", "50", "100", "150"]);
        assert_eq!(labels(&Linear::to([8321.0]).ticks()), ["0", "2500", "5000", "7500", "10000"]);
        assert_eq!(Linear::to([8321.0]).place(5000.0), 50.0);
    }
}
