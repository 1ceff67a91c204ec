// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs are linked anew when their linker script, which the tool names, changes.

fn main() {
    println!("cargo::rerun-if-changed=link.ld");
}
