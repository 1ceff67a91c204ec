// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Marked places in Markdown: `<!--= WHAT -->`, the text, and `<!-- / -->`. Neither comment is shown. One behind a backtick is an
//! example, and no mark.

use std::ops::Range;

/// How a mark begins.
pub const BEGIN: &str = "<!--= ";
const CLOSE: &str = " -->";
/// How a place ends.
pub const END: &str = "<!-- / -->";

/// A marked place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark<'t> {
    /// What is to be there.
    pub what: &'t str,
    /// Where in the text.
    pub place: Range<usize>,
}

/// Finds the marked places of a text.
///
/// # Errors
/// A mark that does not end, or that begins a line: there, what follows would not be read as Markdown.
pub fn find(text: &str) -> Result<Vec<Mark<'_>>, String> {
    let mut marks = Vec::new();
    let mut from = 0;
    while let Some(at) = text.get(from..).and_then(|rest| rest.find(BEGIN)).map(|at| from + at) {
        if text.get(..at).is_some_and(|before| before.ends_with('`')) {
            from = at + BEGIN.len();
            continue;
        }
        let line = text.get(..at).and_then(|before| before.rsplit('\n').next()).unwrap_or_default();
        let rest = text.get(at + BEGIN.len()..).unwrap_or_default();
        let shown = rest.lines().next().unwrap_or_default();
        let unended = || format!("the mark `{shown}` does not end");
        let (what, _) = rest.split_once(CLOSE).ok_or_else(unended)?;
        let begin = at + BEGIN.len() + what.len() + CLOSE.len();
        let inside = text.get(begin..).unwrap_or_default();
        let length = inside.find(END).ok_or_else(unended)?;
        let inside = inside.get(..length).unwrap_or_default();
        if what.contains('\n') || inside.contains(BEGIN) {
            return Err(unended());
        }
        if line.trim().is_empty() && !inside.starts_with('\n') {
            return Err(format!("`{what}` begins a line: put a word in front of it"));
        }
        marks.push(Mark { what, place: begin..begin + length });
        from = begin + length + END.len();
    }
    Ok(marks)
}

/// The text with what belongs into its marked places.
pub fn fill(text: &str, make: impl Fn(&str) -> Result<String, String>) -> Result<String, String> {
    let mut filled = String::new();
    let mut from = 0;
    for mark in find(text)? {
        filled.push_str(text.get(from..mark.place.start).unwrap_or_default());
        filled.push_str(&make(mark.what)?);
        from = mark.place.end;
    }
    filled.push_str(text.get(from..).unwrap_or_default());
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_filled_and_the_rest_stays() {
        let text = "It takes <!--= a b -->48<!-- / -->, and\n\n<!--= table c -->\nold\n<!-- / -->\nmore.\n";
        let whats: Vec<&str> = find(text).unwrap().into_iter().map(|mark| mark.what).collect();
        assert_eq!(whats, ["a b", "table c"]);
        let filled =
            fill(text, |what| Ok(if what == "a b" { "50".into() } else { "\nnew\n".into() })).unwrap();
        assert_eq!(filled, text.replace("48", "50").replace("old", "new"));
        assert_eq!(fill(&filled, |_| Err("no".into())), Err("no".to_owned()));
    }

    #[test]
    fn marks_end_and_begin_no_line() {
        for text in ["x <!--= a b -->48", "x <!--= a b", "x <!--= a b -->48 <!--= c d -->1<!-- / -->"] {
            assert!(find(text).unwrap_err().contains("`a b"), "{text}");
        }
        assert!(find("a\n  <!--= a b -->48<!-- / -->").unwrap_err().contains("begins a line"));
        assert_eq!(find("nothing <!-- of it -->"), Ok(Vec::new()));
        assert_eq!(find("as `<!--= a b -->` and `<!-- / -->`"), Ok(Vec::new()), "an example");
    }
}
