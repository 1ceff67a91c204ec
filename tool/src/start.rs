// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From a command line to an exit code.

use std::process::ExitCode;

use clap::Parser;

use crate::failure::Result;
use crate::ui;

/// Does what the command line says; a failure is printed.
pub fn start<C: Parser>(execute: fn(&C) -> Result<()>) -> ExitCode {
    ui::silence_stream_panics();
    let code = std::panic::catch_unwind(|| command_line(execute)).unwrap_or_else(|panic| {
        if !ui::stream_failed() {
            std::panic::resume_unwind(panic);
        }
        ExitCode::FAILURE
    });
    match ui::lost_output() {
        None => code,
        Some(failure) => {
            failure.print();
            // What went wrong before says more.
            if code == ExitCode::SUCCESS { failure.exit_code() } else { code }
        }
    }
}

fn command_line<C: Parser>(execute: fn(&C) -> Result<()>) -> ExitCode {
    let cli = match C::try_parse() {
        Ok(cli) => cli,
        // For --help (0) and for a wrong command line (2).
        Err(text) => {
            let printed = text.print();
            if !text.use_stderr() {
                ui::printed(printed);
            }
            return u8::try_from(text.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from);
        }
    };
    match execute(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.print();
            failure.exit_code()
        }
    }
}
