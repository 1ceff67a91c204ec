// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Link arguments of the bare-metal image.

fn main() {
    println!("cargo::rerun-if-changed=link.ld");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("none") {
        return;
    }
    let directory = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    println!("cargo::rustc-link-arg-bins=-T{directory}/link.ld");
    // -znorelro: .got and .data.rel.ro lie where the script puts them; the boot code applies the relocations.
    for argument in ["-pie", "--no-dynamic-linker", "-znotext", "-znorelro", "-zmax-page-size=4096"] {
        println!("cargo::rustc-link-arg-bins={argument}");
    }
}
