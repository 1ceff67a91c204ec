// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program `turnstile-vmm`: see the library.

use std::process::ExitCode;

#[cfg(not(all(target_arch = "aarch64", target_os = "linux")))]
fn main() -> ExitCode {
    eprintln!("turnstile-vmm needs Linux on arm64");
    ExitCode::FAILURE
}

#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
fn main() -> ExitCode {
    arm64::main()
}

#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
mod arm64 {
    use std::fs::{self, File};
    use std::io::{BufReader, BufWriter};
    use std::path::Path;
    use std::process::ExitCode;
    use std::time::Duration;

    use anyhow::{Context, Result};
    use clap::Parser;
    use turnstile_vmm::bus::Bus;
    use turnstile_vmm::options::{MACHINE, Options};
    use turnstile_vmm::{host, machine, symbols, vcpu};

    /// Does what the command line says; a host of its own is switched off afterwards, whatever happened.
    pub fn main() -> ExitCode {
        let alone = host::is_alone();
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            println!("@error the monitor panicked: {panic}");
            hook(panic);
            if host::is_alone() {
                host::power_off();
            }
        }));
        let result = if alone { host::mount_all() } else { Ok(()) }.and_then(|()| follow());
        if let Err(error) = &result {
            println!("@error {error:#}");
        }
        if alone {
            host::power_off();
        }
        if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn follow() -> Result<()> {
        let options = match Options::try_parse() {
            Ok(options) => options,
            // For --help, which a user reads, and for a wrong command line, which is one line here.
            Err(text) if !text.use_stderr() => return text.print().context("cannot write"),
            Err(text) => {
                let text = text.to_string();
                anyhow::bail!("{}", text.lines().next().unwrap_or_default());
            }
        };
        std::thread::sleep(Duration::from_secs(options.settle));
        match (&options.symbols, &options.guest) {
            (Some(device), _) => write_symbols(device),
            (None, Some(guest)) => run(&options, guest),
            (None, None) => anyhow::bail!("there is no guest"),
        }
    }

    fn run(options: &Options, guest: &Path) -> Result<()> {
        let image = fs::read(guest).with_context(|| format!("cannot read {}", guest.display()))?;
        let mut machine = machine::build(options, &image)?;
        vcpu::run(&mut machine, Bus::new(MACHINE.map()), options.cycles)
    }

    fn write_symbols(device: &Path) -> Result<()> {
        let table = File::open("/proc/kallsyms").context("cannot open /proc/kallsyms")?;
        let to = File::options().write(true).open(device);
        let to = to.with_context(|| format!("cannot open {}", device.display()))?;
        symbols::copy(BufReader::new(table), BufWriter::with_capacity(1 << 16, to))
            .context("cannot copy the kernel's symbols")
    }
}
