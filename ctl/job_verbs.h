/*
 * Commands of `cachectl job` on jobs that exist. Each parses its own arguments and returns an exit status.
 */
#pragma once

int job_list_command(int argc, char **argv);
int job_get_command(int argc, char **argv);
int job_events_command(int argc, char **argv);
int job_delete_command(int argc, char **argv);
int job_wait_command(int argc, char **argv);
int job_suspend_command(int argc, char **argv);
int job_resume_command(int argc, char **argv);
int job_scale_command(int argc, char **argv);
int job_logs_command(int argc, char **argv);
int job_why_command(int argc, char **argv);
