// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the hypervisor for PCs refuses, in a sentence, and how it reports faults of its own.

use turnstile::isa::Isa;

use super::refused::{RESET, damaged, fault, panic, refuse, too_few_cpus};
use super::scenario::Scenario;

/// The architecture of this topic.
const ISA: Isa = Isa::X86_64;
/// The error codes of page faults (AMD APM vol. 2, 8.4.2): a write to a page that forbids it, a fetch from one that
/// forbids that, a write to no page.
const FORBIDDEN_WRITE: &str = "0x3";
const FORBIDDEN_FETCH: &str = "0x11";
const WRITE_TO_NOTHING: &str = "0x2";

/// The scenarios of this topic.
pub fn scenarios() -> Vec<Scenario> {
    let mut scenarios = vec![
        refuse(ISA, "no-svm", "the CPU has no SVM", |boot, _| {
            boot.cpu = "qemu64".to_owned();
            boot.virtualization = false;
            Ok(())
        }),
        refuse(ISA, "no-nested-paging", "no nested paging", |boot, _| {
            boot.cpu.push_str(",-npt");
            Ok(())
        }),
    ];
    scenarios.extend(damaged(ISA));
    scenarios.extend([
        too_few_cpus(ISA),
        panic(ISA),
        fault(ISA, "write-to-code", &["page fault", FORBIDDEN_WRITE, RESET]),
        fault(ISA, "run-data", &["page fault", FORBIDDEN_FETCH, RESET]),
        fault(ISA, "stack-overflow", &["page fault", WRITE_TO_NOTHING, "backtrace", RESET]),
    ]);
    scenarios
}
