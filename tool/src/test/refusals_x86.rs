// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the hypervisor for PCs refuses, in a sentence, and how it reports faults of its own.

use std::path::Path;

use super::refusals::{change, flip_in_image, provoke};
use super::scenario::{Ending, Scenario, Step, guest};
use crate::failure::Result;
use crate::qemu::Boot;

/// The error codes of page faults (AMD APM vol. 2, 8.4.2): a write to a page that forbids it, a fetch from one that
/// forbids that, a write to no page.
const FORBIDDEN_WRITE: &str = "0x3";
const FORBIDDEN_FETCH: &str = "0x11";
const RESET: &str = "resetting the machine";

/// The scenarios of this topic.
pub fn scenarios() -> Vec<Scenario> {
    vec![
        refuse("no-svm", "the CPU has no SVM", |boot, _| {
            boot.cpu = "qemu64".to_owned();
            boot.virtualization = false;
            Ok(())
        }),
        refuse("no-nested-paging", "no nested paging", |boot, _| {
            boot.cpu.push_str(",-npt");
            Ok(())
        }),
        refuse("flipped-byte-in-an-image", "damaged: image 0", |boot, folder| {
            change(boot, folder, |bytes| flip_in_image(bytes))
        }),
        refuse("truncated-bundle", "truncated", |boot, folder| {
            change(boot, folder, |bytes| bytes.truncate(bytes.len() / 2))
        }),
        refuse("not-a-bundle", "no bundle", |boot, folder| {
            change(boot, folder, |bytes| *bytes = b"#!/bin/sh\n".repeat(1000))
        }),
        refuse("no-bundle", "no bundle", |boot, _| {
            boot.bundle = None;
            Ok(())
        }),
        refuse("too-few-cpus", "CPU", |boot, folder| {
            // The bundle of a machine with more CPUs than this one has.
            boot.cpus = 1;
            change(boot, folder, |_| {})
        })
        .with_config(pc("cpus = [3]")),
        fault("panic", vec!["panicked at", "provoked", "backtrace", RESET]),
        fault("write-to-code", vec!["page fault", FORBIDDEN_WRITE, RESET]),
        fault("run-data", vec!["page fault", FORBIDDEN_FETCH, RESET]),
        fault("stack-overflow", vec!["page fault", "0x2", "backtrace", RESET]),
    ]
}

fn pc(more: &str) -> String {
    format!("[machine]\nisa = \"x86_64\"\n{}", guest("echo", "echo", "16MiB", more))
}

fn refuse(name: &str, text: &'static str, prepare: fn(&mut Boot, &Path) -> Result<()>) -> Scenario {
    let scenario = Scenario::pc(format!("refusal/{name}"), pc(""), vec![Step::Text(text)]);
    scenario.ending(Ending::Refused).prepare(prepare).limit(60)
}

/// A fault that the hypervisor's command line provokes: reported with registers and backtrace, then a reset.
fn fault(kind: &str, texts: Vec<&'static str>) -> Scenario {
    let steps = texts.into_iter().map(Step::Text).collect();
    let scenario = Scenario::pc(format!("fault/{kind}"), pc(""), steps).ending(Ending::Refused).limit(60);
    match kind {
        "write-to-code" => scenario.prepare(|boot, _| provoke(boot, "write-to-code")),
        "run-data" => scenario.prepare(|boot, _| provoke(boot, "run-data")),
        "stack-overflow" => scenario.prepare(|boot, _| provoke(boot, "stack-overflow")),
        _ => scenario.prepare(|boot, _| provoke(boot, "panic")),
    }
}
