// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The report in a browser: it shows what the JSON says, on every width, in light and dark, and asks for nothing.

#[path = "../common/mod.rs"]
mod common;
mod devtools;

use std::path::{Path, PathBuf};

use common::Folder;
use devtools::Browser;
use serde_json::{Value, json};

const FIXTURE: &str = include_str!("../data/bench.json");
const WEIGHTS: &str = "../bench/weights/seeds-arm64.toml";
/// The largest page, in bytes.
const LARGEST: u64 = 1_000_000;
/// The longest time until it is loaded, in milliseconds.
const LONGEST: f64 = 1000.0;
/// Instructions of one visit, in a large report.
const MANY: usize = 2000;

fn fixture() -> Value {
    serde_json::from_str(FIXTURE).expect("the fixture is JSON")
}

/// Makes the report of a run by the tool, with estimates; also the run with the estimates in it.
fn report(folder: &Folder, run: &Value) -> (PathBuf, Value) {
    folder.write("run.json", run.to_string().as_bytes());
    let weights = Path::new(env!("CARGO_MANIFEST_DIR")).join(WEIGHTS);
    let mut command = folder.turnstile();
    command.args(["bench", "--from", "run.json", "--save", "estimated.json", "--html", "report.html"]);
    command.arg("--weights").arg(weights).assert().success();
    let saved = std::fs::read_to_string(folder.path().join("estimated.json")).expect("the run is saved");
    (folder.path().join("report.html"), serde_json::from_str(&saved).expect("it is JSON"))
}

fn array(value: &Value) -> &[Value] {
    value.as_array().expect("an array")
}

/// A shown number: digits in groups, perhaps with a mark behind.
fn number(shown: &Value) -> f64 {
    let text: String = shown.as_str().expect("text").chars().filter(|c| !c.is_whitespace()).collect();
    text.trim_end_matches('*').parse().unwrap_or_else(|_| panic!("{shown} is a number"))
}

#[test]
fn what_is_shown_equals_the_json() {
    let folder = Folder::new();
    let (page, run) = report(&folder, &fixture());
    let mut browser = Browser::start();
    browser.open(&page);
    let cells = browser.evaluate(
        "[...document.querySelectorAll('#instructions [data-row]')]
            .map(cell => [cell.dataset.subject, cell.dataset.row, cell.innerText])",
    );
    let bars = browser.evaluate(
        "[...document.querySelectorAll('[data-bar]')].map(bar => [bar.dataset.bar, bar.textContent])",
    );
    let mut figures = 0;
    for figure in array(&run["rows"]) {
        let Some(instructions) = figure["instructions"].as_f64() else { continue };
        let cell = array(&cells).iter().find(|cell| cell[0] == figure["subject"] && cell[1] == figure["row"]);
        assert_eq!(cell.map(|cell| number(&cell[2])), Some(instructions), "{figure}");
        let name = format!("{} {}", figure["subject"].as_str().unwrap(), figure["row"].as_str().unwrap());
        if let Some(bar) = array(&bars).iter().find(|bar| bar[0] == name.as_str()) {
            assert_eq!(number(&bar[1]), instructions, "{figure}");
            figures += 1;
        }
    }
    assert_eq!(figures, array(&bars).len());
    assert!(figures > 20, "{figures}");
    let embedded = browser.evaluate("document.getElementById('document').textContent");
    let embedded: Value = serde_json::from_str(embedded.as_str().expect("text")).expect("JSON");
    let mut expected = run;
    for trace in expected["traces"].as_array_mut().unwrap() {
        trace["steps"] = json!([]);
    }
    assert!(embedded == expected, "the embedded JSON is the run without its single instructions");
}

#[test]
fn estimates_and_ablations_equal_the_json() {
    let folder = Folder::new();
    let (page, run) = report(&folder, &fixture());
    let mut browser = Browser::start();
    browser.open(&page);
    let table = |browser: &mut Browser, id: &str| {
        browser.evaluate(&format!(
            "[...document.querySelectorAll('#{id} tbody tr')].map(line => [...line.cells].map(cell => cell.innerText))"
        ))
    };
    let cycles = table(&mut browser, "cycles-table");
    for (index, subject) in array(&run["subjects"]).iter().enumerate() {
        for line in array(&cycles) {
            let figure = array(&run["rows"])
                .iter()
                .find(|figure| figure["row"] == line[0] && figure["subject"] == subject["subject"]);
            match figure.and_then(|figure| figure["cycles"]["total"].as_f64()) {
                Some(total) => assert_eq!(number(&line[index + 1]), total.round(), "{line}"),
                None => assert_eq!(line[index + 1], "–"),
            }
        }
    }
    let residuals = table(&mut browser, "residual-table");
    let known: Vec<(f64, f64)> =
        array(&residuals).iter().map(|line| (number(&line[1]), number(&line[2]))).collect();
    let residuals = array(&run["weights"]["residuals"]).iter();
    let expected: Vec<(f64, f64)> = residuals
        .map(|known| (known["measured"].as_f64().unwrap(), known["model"].as_f64().unwrap().round()))
        .collect();
    assert_eq!(known, expected);
    let ablation = table(&mut browser, "ablation-table");
    let first = &array(&ablation)[0];
    for (index, row) in array(&run["ablation"]["rows"]).iter().filter(|row| row["off"] == "none").enumerate()
    {
        let shown = first[index + 1].as_str().unwrap().split_whitespace().next().unwrap();
        assert_eq!(shown.parse::<f64>().unwrap(), row["instructions"].as_f64().unwrap());
    }
}

#[test]
fn nothing_is_complained_about_and_nothing_is_fetched() {
    let folder = Folder::new();
    let (page, _) = report(&folder, &fixture());
    let mut browser = Browser::start();
    browser.open(&page);
    let before = browser.evaluate("getComputedStyle(document.body).backgroundColor");
    browser.evaluate("document.getElementById('theme').click()");
    let after = browser.evaluate("getComputedStyle(document.body).backgroundColor");
    assert_ne!(before, after, "the button changes the colours");
    browser.evaluate("document.querySelectorAll('details').forEach(element => { element.open = true })");
    for event in ["Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"] {
        assert_eq!(browser.events(event), Vec::<&Value>::new());
    }
    let requests = browser.events("Network.requestWillBeSent");
    assert_eq!(requests.len(), 1, "only the page itself: {requests:?}");
}

#[test]
fn nothing_overflows_on_a_telephone_or_a_desk() {
    let folder = Folder::new();
    let (page, _) = report(&folder, &fixture());
    let mut browser = Browser::start();
    for width in [320, 390, 768, 1280] {
        browser.width(width);
        browser.open(&page);
        browser.evaluate("document.querySelectorAll('details').forEach(element => { element.open = true })");
        let wide = browser.evaluate("document.documentElement.scrollWidth");
        assert!(wide.as_u64().unwrap() <= u64::from(width), "{wide} pixels on {width}");
        let outside = browser.evaluate(
            "[...document.querySelectorAll('svg text')]
                .filter(text => !text.closest('.wide') && text.getBoundingClientRect().width > 0)
                .filter(text => text.getBoundingClientRect().right > innerWidth + 1 || text.getBoundingClientRect().left < -1)
                .map(text => text.textContent)",
        );
        assert_eq!(outside, json!([]), "on {width}");
    }
}

#[test]
fn charts_are_there_without_scripts() {
    let folder = Folder::new();
    let (page, _) = report(&folder, &fixture());
    let mut browser = Browser::start();
    browser.call("Emulation.setScriptExecutionDisabled", json!({ "value": true }));
    browser.open(&page);
    let visible = "[...document.querySelectorAll('svg rect')].filter(bar => bar.getBoundingClientRect().width > 0).length";
    assert!(browser.evaluate(visible).as_u64().unwrap() > 50);
    assert_eq!(browser.evaluate("document.querySelector('.tools').offsetParent"), Value::Null);
}

#[test]
fn text_can_be_read_in_light_and_dark() {
    let folder = Folder::new();
    let (page, _) = report(&folder, &fixture());
    let mut browser = Browser::start();
    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        browser.open(&page);
        let weak = browser.evaluate(include_str!("contrast.js"));
        assert_eq!(weak, json!([]), "in {scheme}");
    }
}

#[test]
fn a_large_report_is_small_and_quick() {
    let folder = Folder::new();
    let mut run = fixture();
    for trace in run["traces"].as_array_mut().unwrap() {
        let step = |index: usize| {
            json!({
                "pc": format!("{:#x}", 0xffff_8000_8001_2000_usize + index * 4),
                "function": format!("function_{}", index / 30), "text": "stp x29, x30, [sp, #-0x40]!"
            })
        };
        trace["steps"] = (0..MANY).map(step).collect();
    }
    let (page, _) = report(&folder, &run);
    let bytes = std::fs::metadata(&page).expect("the page is there").len();
    assert!(bytes < LARGEST, "{bytes} bytes");
    let mut browser = Browser::start();
    // The quickest of three: whatever else this machine does is not the page's.
    let times = [(); 3].map(|()| {
        browser.open(&page);
        browser.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd").as_f64().unwrap()
    });
    let quickest = times.into_iter().fold(f64::INFINITY, f64::min);
    assert!(quickest > 0.0 && quickest < LONGEST, "{times:?} ms");
}
