// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of the page as HTML; tool/tests/browser/main.rs opens it in a browser.

use scraper::{Html, Selector};

use super::*;
use crate::bench::document::{Figure, WeightsUsed, WorkFigure};
use crate::meter::fold::NamedStep;

const FIXTURE: &str = include_str!("../../../tests/data/bench.json");
const HOSTILE: &str = "</script><img src=x onerror=alert(1)>\"'&\u{1b}[31m\u{202e}";

fn fixture() -> Document {
    Document::parse(FIXTURE).unwrap()
}

fn parsed(document: &Document) -> Html {
    let html = Html::parse_document(&page(&[document]).unwrap());
    // Everything opened is closed, and nothing is where it may not be.
    assert_eq!(html.errors, Vec::<String>::new());
    html
}

fn all<'h>(html: &'h Html, selector: &str) -> Vec<scraper::ElementRef<'h>> {
    html.select(&Selector::parse(selector).unwrap()).collect()
}

fn text(element: &scraper::ElementRef<'_>) -> String {
    element.text().collect::<String>().replace('\u{202f}', "").trim().to_owned()
}

fn number(element: &scraper::ElementRef<'_>) -> f64 {
    text(element).trim_end_matches('*').parse().unwrap()
}

#[test]
fn every_figure_is_in_the_table_and_beside_its_bar() {
    let document = fixture();
    let html = parsed(&document);
    let mut shown = 0;
    for figure in document.rows.iter().filter(|figure| figure.instructions.is_some()) {
        let cell = format!("#instructions [data-subject='{}'][data-row='{}']", figure.subject, figure.row);
        let cells = all(&html, &cell);
        assert_eq!(cells.iter().map(number).collect::<Vec<_>>(), [figure.instructions.unwrap()], "{cell}");
        if !figure.row.starts_with("sgi-to-") {
            let bar = format!("[data-bar='{} {}']", figure.subject, figure.row);
            assert_eq!(
                all(&html, &bar).iter().map(number).collect::<Vec<_>>(),
                [figure.instructions.unwrap()]
            );
        }
        shown += 1;
    }
    assert!(shown > 20);
}

#[test]
fn bars_are_as_long_as_the_axis_says() {
    let html = parsed(&fixture());
    let axis = &all(&html, ".axis")[0];
    let ticks: Vec<(f64, f64)> = axis
        .select(&Selector::parse(".tick").unwrap())
        .map(|tick| (number(&tick), tick.attr("x").unwrap().trim_end_matches('%').parse().unwrap()))
        .collect();
    assert_eq!(ticks, [(10.0, 0.0), (100.0, 33.33), (1000.0, 66.67), (10000.0, 100.0)]);
    let figure = &all(&html, "[data-bar='kvm-vhe null-hypercall']")[0];
    let place: f64 = figure.attr("x").unwrap().trim_end_matches('%').parse().unwrap();
    assert!((place - (1364f64.log10() - 1.0) / 3.0 * 100.0).abs() < 0.01, "{place}");
}

#[test]
fn what_the_counts_are_comes_first() {
    let html = parsed(&fixture());
    let ledes: Vec<String> = all(&html, "header .lede").iter().map(text).collect();
    assert!(
        ledes[0].contains("exact counts of instructions") && ledes[0].contains("not cycles and not time")
    );
    assert!(ledes[1].contains("./x bench --native"));
}

#[test]
fn errors_are_shown_and_what_is_recorded_is_marked() {
    let mut document = fixture();
    let error = |figure: &&mut Figure| figure.subject == "xen" && figure.row == "self-sgi";
    let figure = document.rows.iter_mut().find(error).unwrap();
    (figure.error, figure.instructions) = (Some("it does not boot".to_owned()), None);
    document.rows[0].recorded = true;
    let html = parsed(&document);
    let errors: Vec<String> = all(&html, ".errors li").iter().map(text).collect();
    assert!(errors.iter().any(|line| line == "self-sgi on Xen: it does not boot"), "{errors:?}");
    assert_eq!(text(&all(&html, "[data-bar='turnstile null-hypercall']")[0]), "48*");
    assert!(all(&html, "[data-bar='xen self-sgi']").is_empty());
    assert_eq!(all(&html, "rect.recorded").len(), 1);
}

#[test]
fn sections_are_there_only_with_something_in_them() {
    let mut document = fixture();
    let sections = |document: &Document| -> Vec<String> {
        let html = parsed(document);
        all(&html, "main h2").iter().filter_map(|title| title.attr("id").map(str::to_owned)).collect()
    };
    assert_eq!(
        sections(&document),
        ["errors", "figures", "operations", "curve", "ablation", "traces", "method"],
        "nothing is estimated without a model"
    );
    document.weights = Some(WeightsUsed::default());
    assert!(sections(&document).contains(&"cycles".to_owned()));
    document.rows.retain(|figure| figure.row == "null-hypercall");
    document.rows.iter_mut().for_each(|figure| figure.classes.clear());
    (document.traces, document.ablation, document.weights) = (Vec::new(), None, None);
    assert_eq!(sections(&document), ["figures", "method"]);
    document.subjects.clear();
    document.rows.clear();
    assert_eq!(sections(&document), ["figures", "method"], "an empty run is a page, too");
    document.work.push(WorkFigure {
        row: "pipe-1cpu".to_owned(),
        ratio: Some(1.25),
        ..WorkFigure::default()
    });
    assert_eq!(sections(&document), ["work", "method"], "whole work alone");
    assert!(parsed(&document).html().contains("1.250"), "{:?}", document.work);
}

#[test]
fn platforms_are_side_by_side() {
    let mut document = fixture();
    let mut other = document.figure("turnstile", "null-hypercall").unwrap().clone();
    (other.platform, other.instructions) = ("max-gicv2".to_owned(), Some(51.0));
    document.elsewhere.push(other);
    let html = parsed(&document);
    let cell = |platform: &str| {
        let cells = format!("#platforms [data-platform='{platform}'][data-row='null-hypercall']");
        all(&html, &cells).iter().map(text).collect::<Vec<_>>()
    };
    assert_eq!([cell("max-gicv3"), cell("max-gicv2")], [["48"], ["51"]]);
}

#[test]
fn architectures_are_parts_with_their_machine_and_figures() {
    let arm = fixture();
    let power = Document {
        isa: "power64".to_owned(),
        platform: "qemu-powernv9 power9".to_owned(),
        ablation: None,
        ..fixture()
    };
    let html = Html::parse_document(&page(&[&arm, &power]).unwrap());
    assert_eq!(html.errors, Vec::<String>::new());
    let titles: Vec<String> = all(&html, "h2.isa").iter().map(text).collect();
    assert_eq!(titles, ["Armv8-A (arm64)", "POWER (power64)"]);
    let tiles: Vec<String> = all(&html, "header .tiles-what").iter().map(text).collect();
    assert!(tiles[1].contains("POWER (power64)") && tiles[1].contains("instructions"), "{tiles:?}");
    assert!(tiles[1].contains("qemu-powernv9 power9"), "{tiles:?}");
    for document in [&arm, &power] {
        let cell =
            format!("[data-isa='{}'] [data-subject='turnstile'][data-row='null-hypercall']", document.isa);
        let expected = document.figure("turnstile", "null-hypercall").unwrap().instructions.unwrap();
        assert_eq!(all(&html, &cell).iter().map(number).collect::<Vec<_>>(), [expected], "{cell}");
    }
    let mut ids: Vec<&str> = all(&html, "[id]").iter().filter_map(|element| element.attr("id")).collect();
    let every = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), every, "each name is one element's");
    for label in all(&html, "[aria-labelledby]") {
        assert!(ids.contains(&label.attr("aria-labelledby").unwrap()));
    }
    assert_eq!(all(&html, "script[type='application/json']").len(), 2);
    assert!(page(&[&arm, &arm]).unwrap_err().to_string().contains("two runs of arm64"));
}

#[test]
fn strings_stay_text() {
    let mut document = fixture();
    let hostile = || HOSTILE.to_owned();
    document.command = hostile();
    document.host.cpu = hostile();
    document.subjects[1].title = hostile();
    document.rows[0].row = hostile();
    document.rows[0].what = hostile();
    document.rows[1].error = Some(hostile());
    document.rows[2].registers.insert(hostile(), 1.0);
    document.traces[0].folded[0].function = hostile();
    document.traces[0].steps[0].text = hostile();
    document.weights = Some(WeightsUsed { name: hostile(), source: hostile(), residuals: Vec::new() });
    if let Some(ablation) = &mut document.ablation {
        ablation.techniques[0].name = hostile();
        ablation.seed[0].source = hostile();
    }
    let text = page(&[&document]).unwrap();
    let html = parsed(&document);
    assert!(all(&html, "img").is_empty());
    assert_eq!(all(&html, "script").len(), 2);
    assert_eq!(text.matches("</script>").count(), 2);
    assert!(!text.contains(['\u{1b}', '\u{202e}']));
    assert!(text.matches("&#60;img").count() + text.matches("&lt;img").count() > 10);
}

#[test]
fn the_document_is_in_the_page_but_for_single_instructions() {
    let mut document = fixture();
    document.command = HOSTILE.to_owned();
    let html = parsed(&document);
    let script = &all(&html, "script#document")[0];
    let embedded = Document::parse(&script.text().collect::<String>()).unwrap();
    document.traces.iter_mut().for_each(|trace| trace.steps.clear());
    assert_eq!(embedded, document);
}

#[test]
fn nothing_is_fetched() {
    let text = page(&[&fixture()]).unwrap();
    assert!(!text.contains("http://") && !text.contains("https://") && !text.contains("url("));
    let html = Html::parse_document(&text);
    for selector in ["[src]", "[href]", "link", "iframe", "object"] {
        assert!(all(&html, selector).is_empty(), "{selector}");
    }
}

#[test]
fn charts_say_what_they_show() {
    let html = parsed(&fixture());
    let charts = all(&html, "svg[role=img]");
    assert!(charts.len() > 15);
    for chart in charts {
        let title = chart.select(&Selector::parse("title").unwrap()).next().map(|title| text(&title));
        let label = chart.attr("aria-label").map(str::to_owned).or(title).unwrap_or_default();
        assert!(label.len() > 20, "{label}");
    }
}

#[test]
fn a_large_run_stays_below_a_megabyte() {
    let mut document = fixture();
    let step = |index: usize| NamedStep {
        pc: format!("{:#x}", 0xffff_8000_8001_2000_usize + index * 4),
        function: format!("function_{}", index / 40),
        text: "ldr x0, [x19, #0x2c8]".to_owned(),
    };
    for trace in &mut document.traces {
        trace.steps = (0..20_000).map(step).collect();
    }
    let mut other_rows = Vec::new();
    for row in ["io-user", "self-sgi", "virtual-ipi"] {
        other_rows.extend(document.traces.iter().map(|trace| Trace { row: row.to_owned(), ..trace.clone() }));
    }
    document.traces.extend(other_rows);
    let text = page(&[&document]).unwrap();
    assert!(text.len() < LARGEST, "{}", text.len());
    let html = parsed(&document);
    assert!(text.contains("more are left out"), "what is left out is said");
    assert!(text.contains("The visits of 3 more rows are left out"), "what is left out is said");
    assert!(!all(&html, "pre").is_empty());
}

#[test]
fn lines_and_pages_have_a_table_where_they_were_counted() {
    let mut document = fixture();
    assert!(all(&parsed(&document), "#touched").is_empty());
    let figure = document.rows.iter_mut().find(|figure| figure.instructions.is_some()).unwrap();
    figure.footprint =
        Some(crate::bench::document::Footprint { code_lines: 611.0, data_lines: 722.0, pages: 833.0 });
    let row = figure.row.clone();
    let html = parsed(&document);
    let rows = all(&html, "[aria-labelledby='touched'] tbody tr");
    let cells: Vec<String> =
        rows[0].children().filter_map(scraper::ElementRef::wrap).map(|cell| text(&cell)).collect();
    assert_eq!(
        (cells[0].as_str(), &cells[3..]),
        (row.as_str(), &["611", "722", "833"].map(str::to_owned)[..])
    );
    assert!(rows.iter().any(|row| text(row).contains('–')), "what was not counted is said so");
}

#[test]
fn what_is_done_against_speculation_is_in_the_caption_and_beside_each_subject() {
    let mut document = fixture();
    document.subjects[0].mitigations = format!("a loop of 24 {HOSTILE}");
    let html = parsed(&document);
    let caption = text(&all(&html, "#instructions caption")[0]);
    assert!(caption.contains(&format!("{}: a loop of 24", document.subjects[0].title)), "{caption}");
    let said: Vec<String> = all(&html, "td").iter().map(text).collect();
    assert!(
        said.iter().any(|cell| cell.starts_with("a loop of 24"))
            && said.iter().any(|cell| cell == "not known")
    );
}
