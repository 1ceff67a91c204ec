// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers as the page shows them.

/// Between groups of three digits: narrow, and no place to break a line.
const GROUP: char = '\u{202f}';

/// A count: whole as it is, otherwise to two decimals; thousands are set apart.
pub fn count(number: f64) -> String {
    // The sum of nothing is −0; adding 0 makes it 0.
    let rounded = (number * 100.0).round() / 100.0 + 0.0;
    let text = if rounded.fract() == 0.0 { format!("{rounded:.0}") } else { format!("{rounded:.2}") };
    let (whole, fraction) = text.split_once('.').map_or((text.as_str(), None), |(w, f)| (w, Some(f)));
    let digits = whole.trim_start_matches('-').len();
    let mut out = String::new();
    for (index, character) in whole.trim_start_matches('-').chars().enumerate() {
        if index > 0 && (digits - index).is_multiple_of(3) {
            out.push(GROUP);
        }
        out.push(character);
    }
    if whole.starts_with('-') {
        out.insert(0, '−');
    }
    if let Some(fraction) = fraction {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

/// A difference, with its sign; nothing for none.
pub fn difference(number: f64) -> String {
    match number {
        0.0 => "0".to_owned(),
        more if more > 0.0 => format!("+{}", count(more)),
        less => count(less),
    }
}

/// How many times something is something else.
pub fn ratio(number: f64) -> String {
    if number >= 100.0 { format!("{number:.0}×") } else { format!("{number:.1}×") }
}

/// A change in per cent, with its sign.
pub fn percent(number: f64) -> String {
    let rounded = (number * 10.0).round() / 10.0;
    let sign = if rounded < 0.0 {
        "−"
    } else if rounded > 0.0 {
        "+"
    } else {
        ""
    };
    format!("{sign}{}\u{202f}%", rounded.abs())
}

/// A length for CSS and SVG.
pub fn length(percent: f64) -> String {
    format!("{percent:.2}%")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_grouped() {
        assert_eq!(count(48.0), "48");
        assert_eq!(count(1364.0), "1\u{202f}364");
        assert_eq!(count(1_234_567.891), "1\u{202f}234\u{202f}567.89");
        assert_eq!(count(48.250), "48.25");
        assert_eq!(count(-1364.0), "−1\u{202f}364");
        assert_eq!((count(0.0), count(-0.0)), ("0".to_owned(), "0".to_owned()));
    }

    #[test]
    fn signs_and_ratios() {
        assert_eq!(difference(12.0), "+12");
        assert_eq!(difference(-3.0), "−3");
        assert_eq!(difference(0.0), "0");
        assert_eq!(ratio(28.416), "28.4×");
        assert_eq!(ratio(128.4), "128×");
        assert_eq!(percent(-38.0), "−38\u{202f}%");
    }
}
