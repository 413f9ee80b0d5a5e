from .cli import main

main(prog_name="colossalai-fork")
