// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hands the linker what makes a guest a static ELF file at address zero (see `link.ld`).

#[path = "../link.rs"]
mod link;

fn main() {
    link::link(&["--no-pie", "-znorelro", "-zmax-page-size=65536", "--build-id=none"]);
}
