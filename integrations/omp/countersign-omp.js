#!/usr/bin/env node
// Runs `countersign omp` where a host insists on a JavaScript path. Works under bun and node; COUNTERSIGN_BIN names the binary.
const { spawn } = require("node:child_process");
const { constants } = require("node:os");

const binary = process.env.COUNTERSIGN_BIN || "countersign";
const child = spawn(binary, ["omp", ...process.argv.slice(2)], { stdio: "inherit" });
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
child.on("error", (error) => {
  console.error(`countersign-omp: ${binary}: ${error.message}`);
  process.exit(127);
});
child.on("exit", (code, signal) => process.exit(signal ? 128 + constants.signals[signal] : code));
