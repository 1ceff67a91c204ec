// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is wrong with a configuration, where, and how it is shown.

use std::ops::Range;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use serde::Serialize;

use crate::failure::Failure;
use crate::prose;

/// One thing wrong with a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The bytes of the file that are wrong.
    pub span: Range<usize>,
    /// What is wrong, in a sentence without a full stop.
    pub what: String,
    /// What to do about it.
    pub help: String,
}

/// A problem for programs: `check --json`.
#[derive(Debug, Serialize)]
pub struct Located<'a> {
    /// Where it is, counted from 1; not of a file that could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<usize>,
    message: &'a str,
    help: &'a str,
}

impl<'a> Located<'a> {
    /// A failure that no line of the file caused.
    pub fn of(failure: &'a Failure) -> Self {
        Located { line: None, column: None, message: failure.what(), help: failure.advice() }
    }
}

impl Problem {
    /// Describes what is wrong at `span` and what to do about it.
    pub fn new(span: Range<usize>, what: impl Into<String>, help: impl Into<String>) -> Self {
        Problem { span, what: what.into(), help: help.into() }
    }

    /// The problem with its line and column, both counted from 1, columns in characters.
    pub fn located<'a>(&'a self, text: &str) -> Located<'a> {
        let (line, column) = line_and_column(text, self.span.start);
        Located { line: Some(line), column: Some(column), message: &self.what, help: &self.help }
    }

    /// Shows the problem with the lines of the file it is in: `file:line:column` and the words underlined. In a terminal of this
    /// width its sentences are folded between words.
    pub fn render(&self, file: &str, text: &str, colours: bool, width: Option<u16>) -> String {
        const TITLE: &str = "error: ";
        const HELP: &str = "   = help: ";
        let folded = |label: &str, text: &str| match width
            .map(|width| usize::from(width).saturating_sub(label.len()))
        {
            Some(width) => prose::wrap(text, width),
            None => text.to_owned(),
        };
        let (what, help) = (folded(TITLE, &self.what), folded(HELP, &self.help));
        let end = self.span.end.min(text.len());
        let span = self.span.start.min(end)..end;
        let snippet = Snippet::source(text).path(file).annotation(AnnotationKind::Primary.span(span));
        let mut group = Level::ERROR.primary_title(what.as_str()).element(snippet);
        if !self.help.is_empty() {
            group = group.element(Level::HELP.message(help.as_str()));
        }
        let report: &[Group<'_>] = &[group];
        let renderer = if colours { Renderer::styled() } else { Renderer::plain() };
        let renderer = match width {
            Some(width) => renderer.term_width(width.into()),
            None => renderer,
        };
        renderer.render(report)
    }
}

fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let column = before.get(line_start..).unwrap_or_default().chars().count();
    (before.matches('\n').count() + 1, column + 1)
}

/// The name among `known` that `given` is most like, if any is like it at all.
pub fn suggestion<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let mut best = None;
    let plain = |name: &str| name.to_lowercase().replace('_', "-");
    for name in known {
        let likeness = strsim::jaro_winkler(&plain(given), &plain(name));
        if likeness > 0.75 && best.is_none_or(|(least, _)| likeness > least) {
            best = Some((likeness, name));
        }
    }
    best.map(|(_, name)| name)
}

/// Says which names are known, and which of them was perhaps meant.
pub fn did_you_mean(given: &str, known: &[&str]) -> String {
    match suggestion(given, known.iter().copied()) {
        Some(name) => format!("did you mean `{name}`?"),
        None => format!("known {} {}", if known.len() == 1 { "is" } else { "are" }, list(known)),
    }
}

/// Writes names as "`a`, `b` and `c`".
pub fn list(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        Some((last, _)) => last.clone(),
        None => "none".to_owned(),
    }
}

/// Splits a sentence of the form "what is wrong; what to do".
pub fn split_advice(text: &str) -> (String, String) {
    match text.rsplit_once("; ") {
        Some((what, help)) => (what.to_owned(), help.to_owned()),
        None => (text.to_owned(), String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_listed() {
        assert_eq!(did_you_mean("xive", &["pc"]), "known is `pc`");
        assert_eq!(did_you_mean("xive", &["virt", "kvmtool"]), "known are `virt` and `kvmtool`");
        assert_eq!(did_you_mean("vitr", &["virt", "kvmtool"]), "did you mean `virt`?");
    }

    #[test]
    fn lines_and_columns_count_from_one() {
        assert_eq!(line_and_column("ab\ncd\n", 0), (1, 1));
        assert_eq!(line_and_column("ab\ncd\n", 4), (2, 2));
        assert_eq!(line_and_column("é = 1", 2), (1, 2));
    }

    #[test]
    fn suggests_only_what_is_alike() {
        let known = ["vcpus", "cpus", "memory", "on-crash"];
        assert_eq!(suggestion("vcpu", known), Some("vcpus"));
        assert_eq!(suggestion("on_crash", known), Some("on-crash"));
        assert_eq!(suggestion("mem", known), Some("memory"));
        assert_eq!(suggestion("zebra", known), None);
    }

    #[test]
    fn rendering_shows_place_and_help() {
        let problem = Problem::new(5..9, "unknown key `vcpu`", "did you mean `vcpus`?");
        let shown = problem.render("a.toml", "x=1\n\nvcpu = 4\n", false, None);
        assert!(shown.contains("error: unknown key `vcpu`"), "{shown}");
        assert!(shown.contains("a.toml:3:1"), "{shown}");
        assert!(shown.contains("help: did you mean `vcpus`?"), "{shown}");
    }
}
