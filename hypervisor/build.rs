// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Link arguments of the bare-metal image.

/// The linker script and the further arguments of an architecture.
fn link(arch: &str) -> (&'static str, &'static [&'static str]) {
    match arch {
        // Loaded where it is linked.
        "x86_64" => ("link-x86_64.ld", &["-znorelro", "-zmax-page-size=4096"]),
        // Runs in place in the file: pages of 64 KiB put its first byte on one.
        "powerpc64" => (
            "link-power64.ld",
            &["-pie", "--no-dynamic-linker", "-znotext", "-znorelro", "-zmax-page-size=65536"],
        ),
        // -znorelro: .got and .data.rel.ro lie where the script puts them; the boot code applies the relocations.
        _ => ("link.ld", &["-pie", "--no-dynamic-linker", "-znotext", "-znorelro", "-zmax-page-size=4096"]),
    }
}

fn main() {
    let variable = |name| std::env::var(name).unwrap_or_default();
    let (script, arguments) = link(&variable("CARGO_CFG_TARGET_ARCH"));
    println!("cargo::rerun-if-changed={script}");
    if variable("CARGO_CFG_TARGET_OS") != "none" {
        return;
    }
    // A copy in OUT_DIR: of this path alone cargo keeps track when the checkout moves.
    let copy = variable("OUT_DIR") + "/link.ld";
    std::fs::copy(script, &copy).expect("OUT_DIR can be written");
    println!("cargo::rustc-link-arg-bins=-T{copy}");
    for argument in arguments {
        println!("cargo::rustc-link-arg-bins={argument}");
    }
}
