// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hands the linker what makes a guest a position-independent flat image (see `link.ld`).

#[path = "../link.rs"]
mod link;

fn main() {
    link::link(&[
        "-pie",
        "--no-dynamic-linker",
        "-znotext",
        // Without it the linker wants the global offset table in a segment of its own.
        "-znorelro",
        "-zmax-page-size=4096",
        "--build-id=none",
    ]);
}
