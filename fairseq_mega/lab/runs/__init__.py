"""Long jobs: a folder with settings and stages, commands and their logs, options of the scripts that start a job."""
