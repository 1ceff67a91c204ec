// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A saved run of `bench`.

use serde_json::{Value, json};

/// A figure of a saved run.
pub fn row(subject: &str, recorded: bool, instructions: f64) -> Value {
    let classes = if recorded { json!({}) } else { json!({"instructions": instructions, "isb": 2.0}) };
    json!({
        "row": "null-hypercall", "what": "hvc PSCI_VERSION", "subject": subject, "mode": "vhe", "isa": "arm64",
        "platform": "max-gicv3", "recorded": recorded, "error": null, "instructions": instructions,
        "inside": null, "counter": null, "exits": 1.0, "iterations": 65536, "classes": classes, "registers": {}, "devices": {},
        "footprint": {"code_lines": 6.0, "data_lines": 5.0, "pages": 4.0}, "parts": [], "cycles": null
    })
}

/// A saved run: as `bench --save` writes it.
pub fn saved() -> Value {
    let subject = |name: &str, title: &str, version: &str| {
        json!({
            "subject": name, "mode": "vhe", "title": title, "version": version, "mitigations": "spectre_v2: BHB"
        })
    };
    let step = |pc: &str, text: &str| json!({"pc": pc, "function": "vectors", "text": text});
    json!({
        "schema": 3, "date": "2026-01-01T00:00:00Z", "host": {"cpu": "a CPU", "cores": 2, "os": "Debian"},
        "tool": "0.1.0", "qemu": "10.0.2", "isa": "arm64", "platform": "qemu-virt max gicv3",
        "command": "./x bench --rows null-hypercall",
        "subjects": [subject("turnstile", "Turnstile", "Turnstile 0.1.0"), subject("kvm-vhe", "KVM VHE", "Linux 6.12.95 KVM")],
        "rows": [row("turnstile", false, 50.0), row("kvm-vhe", true, 1364.0)],
        "elsewhere": [],
        "traces": [{
            "subject": "turnstile", "row": "null-hypercall", "folded": [{"function": "vectors", "instructions": 2}],
            "steps": [step("0x40200800", "stp x0, x1, [sp]"), step("0x40200804", "eret")]
        }],
        "ablation": null, "weights": null, "work": []
    })
}
