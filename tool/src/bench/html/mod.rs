// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The report: one page that needs nothing but a browser.
//!
//! It is made from the documents, one of each architecture, and nothing else. Its templates, style and script are in `bench/report/`. All
//! charts are SVG with places in per cent, so that text keeps its size on every width; the script adds only
//! conveniences.

mod ablation;
mod curve;
mod cycles;
mod embed;
mod figures;
mod number;
mod operations;
mod scale;
mod series;
#[cfg(test)]
mod tests;
mod trace;

use askama::Template;
use trace::Detail;

use super::document::{Document, Trace};
use super::matrix::Matrix;
use super::table;
use super::work::Sheet;
use crate::failure::{Context, Failure, Result};
use crate::isa::Isa;

const STYLE: &str = include_str!("../../../../bench/report/report.css");
const SCRIPT: &str = include_str!("../../../../bench/report/report.js");
/// The largest page, in bytes.
const LARGEST: usize = 1_000_000;
/// How much of the traces is shown: as much as fits into the largest page.
const DETAILS: [Detail; 6] = [
    Detail { rows: usize::MAX, steps: usize::MAX },
    Detail { rows: usize::MAX, steps: 300 },
    Detail { rows: 1, steps: usize::MAX },
    Detail { rows: 1, steps: 3000 },
    Detail { rows: 1, steps: 300 },
    Detail { rows: 1, steps: 0 },
];

#[derive(Template)]
#[template(path = "page.html")]
struct Page<'d> {
    parts: Vec<Part<'d>>,
    tool: &'d str,
    date: &'d str,
    /// The versions of QEMU, each once.
    qemu: String,
    style: &'static str,
    script: &'static str,
    policy: String,
}

/// What the page has of one run, which is of one architecture.
#[derive(Template)]
#[template(path = "part.html")]
struct Part<'d> {
    document: &'d Document,
    /// The architecture, for people.
    title: &'d str,
    /// Behind the names of elements, which are one page's: nothing for the first part.
    suffix: String,
    /// Whether there are more parts.
    several: bool,
    figures: figures::Figures<'d>,
    operations: Option<operations::Operations<'d>>,
    ablation: Option<ablation::Table<'d>>,
    curve: Option<curve::Curve<'d>>,
    matrix: Option<Matrix<'d>>,
    work: Option<Sheet<'d>>,
    traces: trace::Traces<'d>,
    estimates: Option<cycles::Estimates<'d>>,
    /// What the subjects do against speculation.
    mitigations: String,
    json: String,
}

/// Makes the page of one run, or of several of different architectures.
pub fn page(documents: &[&Document]) -> Result<String> {
    for (index, document) in documents.iter().enumerate() {
        if documents.iter().take(index).any(|other| other.isa == document.isa) {
            return Err(Failure::usage(format!("there are two runs of {}", document.isa))
                .help("give one of each architecture (--from)"));
        }
    }
    for detail in DETAILS {
        let page = render(documents, detail)?;
        if page.len() < LARGEST {
            return Ok(page);
        }
    }
    Err(Failure::failed("the report would be larger than a megabyte")
        .help("measure fewer rows or subjects for one report (--rows, --subjects)"))
}

fn render(documents: &[&Document], detail: Detail) -> Result<String> {
    let several = documents.len() > 1;
    let parts: Result<Vec<Part<'_>>> = documents
        .iter()
        .enumerate()
        .map(|(index, document)| part(document, index, several, detail))
        .collect();
    let first = documents.first();
    let mut qemu: Vec<&str> = documents.iter().map(|document| document.qemu.as_str()).collect();
    qemu.dedup();
    let page = Page {
        parts: parts?,
        tool: first.map_or("", |document| &document.tool),
        date: first.map_or("", |document| &document.date),
        qemu: qemu.join(", "),
        style: STYLE,
        script: SCRIPT,
        policy: embed::policy(SCRIPT),
    };
    let text = page.render().context(|| "cannot write the report".to_owned())?;
    Ok(embed::printable(&text))
}

fn part<'d>(document: &'d Document, index: usize, several: bool, detail: Detail) -> Result<Part<'d>> {
    let figures = figures::Figures::new(document);
    let series = &figures.series;
    Ok(Part {
        document,
        title: title(&document.isa),
        suffix: if index == 0 { String::new() } else { format!("-{}", document.isa) },
        several,
        operations: operations::Operations::new(document, series),
        ablation: document.ablation.as_ref().map(ablation::Table::new),
        curve: curve::Curve::new(document, series),
        matrix: Matrix::new(document),
        work: Sheet::new(document),
        traces: trace::traces(document, series, detail),
        estimates: cycles::Estimates::new(document, series),
        mitigations: table::mitigations(document).join(". "),
        json: embedded(document)?,
        figures,
    })
}

/// An architecture, for people; a document of another version may name one that is not known.
fn title(isa: &str) -> &str {
    match Isa::ALL.into_iter().find(|known| known.name() == isa) {
        Some(Isa::Arm64) => "Armv8-A (arm64)",
        Some(Isa::X86_64) => "AMD64, PCs (x86_64)",
        Some(Isa::Power64) => "POWER (power64)",
        None => isa,
    }
}

/// The document as JSON, without the single instructions: the page has them as text.
fn embedded(document: &Document) -> Result<String> {
    let traces = document.traces.iter().map(|trace| Trace { steps: Vec::new(), ..trace.clone() });
    let document = Document { traces: traces.collect(), ..document.clone() };
    let text = serde_json::to_string(&document).context(|| "cannot write the figures".to_owned())?;
    Ok(embed::json(&text))
}
