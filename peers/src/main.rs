// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program `turnstile-vmm`: see the library.

use std::process::ExitCode;

#[cfg(not(all(
    any(target_arch = "aarch64", target_arch = "powerpc64", target_arch = "x86_64"),
    target_os = "linux"
)))]
fn main() -> ExitCode {
    eprintln!("turnstile-vmm needs Linux on arm64, POWER or x86-64");
    ExitCode::FAILURE
}

#[cfg(all(
    any(target_arch = "aarch64", target_arch = "powerpc64", target_arch = "x86_64"),
    target_os = "linux"
))]
fn main() -> ExitCode {
    linux::main()
}

#[cfg(all(
    any(target_arch = "aarch64", target_arch = "powerpc64", target_arch = "x86_64"),
    target_os = "linux"
))]
mod linux {
    use std::fs::{self, File};
    use std::io::{BufReader, BufWriter};
    use std::path::Path;
    use std::process::ExitCode;
    use std::time::Duration;

    use anyhow::{Context, Result};
    use clap::Parser;
    use turnstile_vmm::options::Options;
    use turnstile_vmm::{arch, host, others, symbols, vcpu};

    /// Does what the command line says.
    pub fn main() -> ExitCode {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            hook(panic);
            finish(Err(anyhow::anyhow!("the monitor panicked: {panic}")));
        }));
        let ready = if host::is_alone() { host::set_up() } else { Ok(()) };
        finish(ready.and_then(|()| follow()))
    }

    /// Says what went wrong and ends the process; a host of its own is switched off.
    fn finish(result: Result<()>) -> ! {
        if let Err(error) = &result {
            println!("@error {error:#}");
        }
        if host::is_alone() {
            host::power_off();
        }
        std::process::exit(i32::from(result.is_err()))
    }

    fn follow() -> Result<()> {
        let options = match Options::try_parse() {
            Ok(options) => options,
            // For --help, which a user reads, and for a wrong command line, which is one line here.
            Err(text) if !text.use_stderr() => return text.print().context("cannot write"),
            Err(text) => {
                let text = text.to_string();
                anyhow::bail!("{}", text.lines().next().unwrap_or_default().trim_start_matches("error: "));
            }
        };
        if options.take_turns {
            host::take_turns()?;
        }
        std::thread::sleep(Duration::from_secs(options.settle));
        match (&options.symbols, &options.monitors, &options.guest) {
            (Some(device), _, _) => write_symbols(device),
            (None, Some(commands), _) => others::run(commands),
            (None, None, Some(guest)) => run(&options, guest),
            (None, None, None) => anyhow::bail!("there is no guest"),
        }
    }

    fn run(options: &Options, guest: &Path) -> Result<()> {
        let image = fs::read(guest).with_context(|| format!("cannot read {}", guest.display()))?;
        let mut machine = arch::build(options, &image)?;
        let devices = arch::devices(&mut machine);
        vcpu::run(&mut machine, devices, options, finish)
    }

    fn write_symbols(device: &Path) -> Result<()> {
        let table = File::open("/proc/kallsyms").context("cannot open /proc/kallsyms")?;
        let to = File::options().write(true).open(device);
        let to = to.with_context(|| format!("cannot open {}", device.display()))?;
        symbols::copy(BufReader::new(table), BufWriter::with_capacity(1 << 16, to))
            .context("cannot copy the kernel's symbols")
    }
}
