// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hands the linker what makes a static ELF file at a fixed address, which Linux loads without a dynamic linker.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("none") {
        return;
    }
    // Kernels with pages of 64 KiB map segments at multiples of those.
    for argument in
        ["--no-pie", "--no-dynamic-linker", "-znorelro", "-zmax-page-size=65536", "--build-id=none"]
    {
        println!("cargo::rustc-link-arg-bins={argument}");
    }
}
