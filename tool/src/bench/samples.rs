// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A small run for tests.

use std::collections::BTreeMap;

use super::document::{Document, Figure, Host, SCHEMA, SubjectInfo};
use super::measure;
use super::platform::Platform;
use super::rows::{ROWS, Row};
use super::subjects::Subject;

/// Turnstile measured, KVM recorded, Xen failed in one row and without the other.
pub fn document() -> Document {
    let info = |subject: Subject, version: &str| SubjectInfo {
        subject: subject.name().to_owned(),
        mode: subject.mode(Platform::usual()).to_owned(),
        title: subject.title().to_owned(),
        version: version.to_owned(),
        mitigations: String::new(),
    };
    let recorded = |row: usize, instructions: f64| Figure {
        recorded: true,
        instructions: Some(instructions),
        ..blank(Subject::KvmVhe, &ROWS[row])
    };
    let failed = Figure { error: Some("Xen does not boot".to_owned()), ..blank(Subject::Xen, &ROWS[0]) };
    Document {
        schema: SCHEMA,
        date: "2026-01-01T00:00:00Z".to_owned(),
        host: Host::default(),
        tool: "0.0.0".to_owned(),
        qemu: "10.0.2".to_owned(),
        isa: "arm64".to_owned(),
        platform: Platform::usual().machine(),
        command: "./x bench --rows null-hypercall,id-register".to_owned(),
        subjects: vec![
            info(Subject::Turnstile, "Turnstile 0.0.0"),
            info(Subject::KvmVhe, "Linux 6.12.95 KVM"),
            info(Subject::Xen, "Xen 4.17.5"),
        ],
        rows: vec![
            turnstile(0, &[("instructions", 48.0), ("register_reads", 3.0), ("exception_entries", 1.0)]),
            turnstile(1, &[("instructions", 60.0), ("register_reads", 4.0), ("exception_entries", 1.0)]),
            recorded(0, 1364.0),
            recorded(1, 1687.0),
            failed,
        ],
        elsewhere: Vec::new(),
        traces: Vec::new(),
        work: Vec::new(),
        ablation: None,
        weights: None,
    }
}

fn blank(subject: Subject, row: &Row) -> Figure {
    measure::blank(subject, row, Platform::usual())
}

/// A measured row of Turnstile's.
pub fn turnstile(row: usize, classes: &[(&str, f64)]) -> Figure {
    let classes: BTreeMap<String, f64> =
        classes.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    let instructions = classes.get("instructions").copied();
    Figure {
        instructions,
        counter: instructions,
        exits: Some(1.0),
        iterations: Some(65536),
        classes,
        ..blank(Subject::Turnstile, &ROWS[row])
    }
}
