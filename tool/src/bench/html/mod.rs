// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The report: one page that needs nothing but a browser.
//!
//! It is made from the document and nothing else. Its templates, style and script are in `bench/report/`. All
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

use super::document::{Document, Trace};
use crate::failure::{Context, Failure, Result};

const STYLE: &str = include_str!("../../../../bench/report/report.css");
const SCRIPT: &str = include_str!("../../../../bench/report/report.js");
/// The largest page, in bytes.
const LARGEST: usize = 1_000_000;
/// How many instructions of each visit are listed: as many as fit into the largest page.
const LISTED: [usize; 5] = [usize::MAX, 3000, 1000, 300, 0];

#[derive(Template)]
#[template(path = "page.html")]
struct Page<'d> {
    document: &'d Document,
    figures: figures::Figures<'d>,
    operations: Option<operations::Operations<'d>>,
    ablation: Option<ablation::Table<'d>>,
    curve: Option<curve::Curve<'d>>,
    traces: Vec<trace::Visits<'d>>,
    estimates: Option<cycles::Estimates<'d>>,
    style: &'static str,
    script: &'static str,
    policy: String,
    json: String,
}

/// Makes the page.
pub fn page(document: &Document) -> Result<String> {
    for limit in LISTED {
        let page = render(document, limit)?;
        if page.len() < LARGEST {
            return Ok(page);
        }
    }
    Err(Failure::failed("the report would be larger than a megabyte")
        .help("measure fewer rows or subjects for one report (--rows, --subjects)"))
}

fn render(document: &Document, limit: usize) -> Result<String> {
    let figures = figures::Figures::new(document);
    let series = &figures.series;
    let page = Page {
        document,
        operations: operations::Operations::new(document, series),
        ablation: document.ablation.as_ref().map(ablation::Table::new),
        curve: curve::Curve::new(document, series),
        traces: trace::visits(document, series, limit),
        estimates: cycles::Estimates::new(document, series),
        style: STYLE,
        script: SCRIPT,
        policy: embed::policy(SCRIPT),
        json: embedded(document)?,
        figures,
    };
    let text = page.render().context(|| "cannot write the report".to_owned())?;
    Ok(embed::printable(&text))
}

/// The document as JSON, without the single instructions: the page has them as text.
fn embedded(document: &Document) -> Result<String> {
    let traces = document.traces.iter().map(|trace| Trace { steps: Vec::new(), ..trace.clone() });
    let document = Document { traces: traces.collect(), ..document.clone() };
    let text = serde_json::to_string(&document).context(|| "cannot write the figures".to_owned())?;
    Ok(embed::json(&text))
}
