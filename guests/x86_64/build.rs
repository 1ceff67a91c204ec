// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hands the linker what makes a guest a static ELF file at a fixed address (see `link.ld`).

#[path = "../link.rs"]
mod link;

fn main() {
    link::link(&["--no-pie", "-znorelro", "-zmax-page-size=4096", "--build-id=none"]);
}
