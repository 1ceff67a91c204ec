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
use trace::Detail;

use super::document::{Document, Trace};
use super::matrix::Matrix;
use crate::failure::{Context, Failure, Result};

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
    document: &'d Document,
    figures: figures::Figures<'d>,
    operations: Option<operations::Operations<'d>>,
    ablation: Option<ablation::Table<'d>>,
    curve: Option<curve::Curve<'d>>,
    matrix: Option<Matrix<'d>>,
    traces: trace::Traces<'d>,
    estimates: Option<cycles::Estimates<'d>>,
    style: &'static str,
    script: &'static str,
    policy: String,
    json: String,
}

/// Makes the page.
pub fn page(document: &Document) -> Result<String> {
    for detail in DETAILS {
        let page = render(document, detail)?;
        if page.len() < LARGEST {
            return Ok(page);
        }
    }
    Err(Failure::failed("the report would be larger than a megabyte")
        .help("measure fewer rows or subjects for one report (--rows, --subjects)"))
}

fn render(document: &Document, detail: Detail) -> Result<String> {
    let figures = figures::Figures::new(document);
    let series = &figures.series;
    let page = Page {
        document,
        operations: operations::Operations::new(document, series),
        ablation: document.ablation.as_ref().map(ablation::Table::new),
        curve: curve::Curve::new(document, series),
        matrix: Matrix::new(document),
        traces: trace::traces(document, series, detail),
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
