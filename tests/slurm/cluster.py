"""A real SLURM of one machine on loopback, for tests; it trusts everyone who can reach it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol", "sinfo")
CONF = """\
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={daemon}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
AuthInfo=cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd-%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
MailProg=/bin/true
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=500
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1
SlurmdParameters=config_overrides
EnforcePartLimits=ALL
ReturnToService=2
JobRequeue=1
KillWait=2
MinJobAge=3600
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
GresTypes=gpu
NodeName=n[1-2] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{nodes}-{last}] CPUs=4 \
RealMemory=4000 Gres=gpu:2 State=UNKNOWN
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE PriorityTier=5 PreemptMode=OFF State=UP
PartitionName=low Nodes=ALL MaxTime=INFINITE PriorityTier=1 GraceTime=20 State=UP
PartitionName=high Nodes=ALL MaxTime=INFINITE PriorityTier=10 PreemptMode=OFF State=UP
"""
# Without accounting there is no sacct; this one answers the one call that submitit makes.
SACCT = """\
#!/bin/sh
KNOWN="PENDING RUNNING COMPLETED CANCELLED FAILED TIMEOUT NODE_FAIL OUT_OF_MEMORY BOOT_FAIL"
KNOWN="$KNOWN DEADLINE PREEMPTED"
echo 'JobID|State|NodeList'
while [ $# -gt 0 ]; do
  if [ "$1" = -j ]; then
    squeue -h -r -t all -o '%i|%T|%N' -j "$2" 2>/dev/null | while IFS='|' read -r job state node; do
      case " $KNOWN " in *" $state "*) ;; *) state=RUNNING ;; esac
      echo "$job|$state|$node"
    done
  fi
  shift
done
"""


def absent() -> list[str]:
    """The programs that are not installed; SLURM also needs root here."""
    lost = [name for name in PROGRAMS if shutil.which(name) is None]
    return lost or ([] if os.geteuid() == 0 else ["root"])


class Cluster:
    """Two nodes with pretend GPUs, partitions `debug`, `low` and, which preempts it, `high`."""

    def __init__(self, folder: Path):
        self.folder = folder
        ports = free_ports(4)
        for name in ("state", "log", "run", "bin", "dev"):
            (folder / name).mkdir(parents=True)
        for i in range(2):
            device = folder / "dev" / f"gpu{i}"
            os.mknod(device, 0o666 | 0o020000, os.makedev(1, 3))
        (folder / "gres.conf").write_text(f"Name=gpu File={folder}/dev/gpu[0-1]\n")
        sacct = folder / "bin" / "sacct"
        sacct.write_text(SACCT)
        sacct.chmod(0o755)
        nodes = consecutive_ports()
        (folder / "slurm.conf").write_text(
            CONF.format(
                host=socket.gethostname().split(".")[0], folder=folder, controller=ports[0],
                daemon=ports[1], nodes=nodes, last=nodes + 1,
            )
        )  # fmt: skip
        self.env = {
            "SLURM_CONF": str(folder / "slurm.conf"),
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        }

    def start(self) -> None:
        self.call("slurmctld", "-i")
        for node in ("n1", "n2"):
            self.call("slurmd", "-N", node)
        deadline = time.time() + 30
        while time.time() < deadline:
            if set(self.call("sinfo", "-h", "-N", "-o", "%T", check=False).split()) == {"idle"}:
                return
            time.sleep(0.2)
        logs = [p.read_text()[-2000:] for p in (self.folder / "log").glob("*.log")]
        raise RuntimeError("SLURM did not start\n" + "\n".join(logs))

    def stop(self) -> None:
        self.call("scancel", "-u", "root", check=False)
        for _ in range(50):
            if not self.call("squeue", "-h", check=False).strip():
                break
            time.sleep(0.2)
        for path in sorted((self.folder / "run").glob("*.pid"), reverse=True):  # slurmd first
            for how in (signal.SIGTERM, signal.SIGKILL):
                with suppress(OSError, ValueError):
                    os.kill(int(path.read_text()), how)
                    time.sleep(0.5)

    def call(self, *command: str, check: bool = True) -> str:
        """Clients block where the controller is down, so that each call has a limit."""
        done = subprocess.run(
            command, env={**os.environ, **self.env}, capture_output=True, text=True, timeout=20
        )
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
        return done.stdout

    def jobs(self) -> dict[str, str]:
        """{job: state} of all jobs that it remembers."""
        lines = self.call("squeue", "-h", "-r", "-t", "all", "-o", "%i %T").splitlines()
        return dict(line.split() for line in lines)


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def consecutive_ports() -> int:
    """The first of two free ports that follow each other."""
    while True:
        (port,) = free_ports(1)
        with socket.socket() as other:
            try:
                other.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port
