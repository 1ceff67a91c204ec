// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table and the JSON of measured rows.

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;

use super::measure::Measured;
use super::rows::{PEERS, ROWS, Row};

const ISA: &str = "arm64";
const PLATFORM: &str = "qemu-virt max gicv3";

/// What `--json` and `--save` write.
#[derive(Debug, Serialize)]
pub struct Document {
    schema: u32,
    rows: Vec<JsonRow>,
}

#[derive(Debug, Serialize)]
struct JsonRow {
    isa: &'static str,
    platform: &'static str,
    subject: &'static str,
    mode: &'static str,
    row: &'static str,
    instructions: f64,
    /// Unknown for recorded figures, as are the exits.
    iterations: Option<u64>,
    exits: Option<f64>,
    /// Not measured in this run.
    recorded: bool,
}

/// Makes the document of the measured rows and of the recorded peers for the same rows.
pub fn document(measured: &[Measured]) -> Document {
    let own = measured.iter().map(|measured| JsonRow {
        isa: ISA,
        platform: PLATFORM,
        subject: "turnstile",
        mode: "vhe",
        row: measured.row.name,
        instructions: measured.report.instructions(),
        iterations: Some(measured.report.iterations),
        exits: Some(measured.exits),
        recorded: false,
    });
    let peers = PEERS.iter().flat_map(|peer| {
        measured.iter().filter_map(|measured| {
            Some(JsonRow {
                isa: ISA,
                platform: PLATFORM,
                subject: peer.subject,
                mode: peer.mode,
                row: measured.row.name,
                instructions: *peer.instructions.get(position(measured.row)?)?,
                iterations: None,
                exits: None,
                recorded: true,
            })
        })
    });
    Document { schema: 1, rows: own.chain(peers).collect() }
}

fn position(row: &Row) -> Option<usize> {
    ROWS.iter().position(|other| other == row)
}

/// Says what the numbers are, and what they are not.
pub fn preface(version: &str, iterations: u64, rows: &[Measured]) -> String {
    let all = rows.len() == ROWS.len();
    let names: Vec<&str> = rows.iter().map(|measured| measured.row.name).collect();
    let selection = if all { String::new() } else { format!(" --rows {}", names.join(",")) };
    format!(
        "Instructions executed outside the guest for one operation, on {ISA} with VHE and GICv3.\n\
         They are exact counts, the same in every run, by QEMU {version} (TCG) with -icount shift=0. They are not\n\
         cycles: an emulator has none. Columns marked * are recorded figures, not measured in this run.\n\
         To repeat: ./x bench{selection} --iterations {iterations}\n"
    )
}

/// The table.
pub fn table(measured: &[Measured]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
    let mut header =
        vec!["row".to_owned(), "operation".to_owned(), "turnstile".to_owned(), "exits".to_owned()];
    header.extend(PEERS.iter().map(|peer| format!("{} *", peer.title)));
    table.set_header(header);
    for measured in measured {
        let instructions = measured.report.instructions();
        let mut cells = vec![
            Cell::new(measured.row.name),
            Cell::new(measured.row.what),
            right(&format!("{instructions:.2}")),
            right(&count(measured.exits)),
        ];
        for peer in &PEERS {
            let figure = position(measured.row).and_then(|position| peer.instructions.get(position));
            cells.push(right(&figure.map_or_else(|| "–".to_owned(), |figure| versus(*figure, instructions))));
        }
        table.add_row(cells);
    }
    table
}

fn right(text: &str) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

fn count(number: f64) -> String {
    if number.fract() == 0.0 { format!("{number:.0}") } else { format!("{number:.2}") }
}

/// A peer's figure and how many times ours it is.
fn versus(peer: f64, own: f64) -> String {
    if own > 0.0 { format!("{peer:.0} ({:.1}×)", peer / own) } else { format!("{peer:.0}") }
}

#[cfg(test)]
mod tests {
    use super::super::measure::Report;
    use super::*;

    fn sample() -> Vec<Measured> {
        let report = Report {
            row: "null-hypercall".into(),
            iterations: 1024,
            ticks: 47_104,
            empty: 1024,
            frequency: 1_000_000_000,
        };
        vec![Measured { row: &ROWS[0], report, exits: 1.0 }]
    }

    #[test]
    fn json_has_the_agreed_fields() {
        let json = serde_json::to_value(document(&sample())).unwrap();
        assert_eq!(json["schema"], 1);
        assert_eq!(
            json["rows"][0],
            serde_json::json!({
                "isa": "arm64", "platform": "qemu-virt max gicv3", "subject": "turnstile", "mode": "vhe",
                "row": "null-hypercall", "instructions": 45.0, "iterations": 1024, "exits": 1.0,
                "recorded": false
            })
        );
        assert_eq!(json["rows"][1]["subject"], "kvm-vhe");
        assert_eq!(json["rows"][1]["instructions"], 1364.0);
        assert_eq!(json["rows"][2]["recorded"], true);
        let keys = |row: usize| json["rows"][row].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(0), keys(2), "recorded rows have the same keys; what is unknown is null");
        assert_eq!(json["rows"].as_array().unwrap().len(), 3, "peers only for what was measured");
    }

    #[test]
    fn table_marks_what_is_recorded() {
        let text = table(&sample()).to_string();
        assert!(text.contains("Linux 6.12 KVM VHE *"), "{text}");
        assert!(text.contains("45.00"), "{text}");
        assert!(text.contains("1364 (30.3×)"), "{text}");
        let preface = preface("10.0.2", 1024, &sample());
        assert!(preface.contains("not\ncycles"), "{preface}");
        assert!(preface.contains("--rows null-hypercall --iterations 1024"), "{preface}");
    }
}
