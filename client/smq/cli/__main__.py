from smq.cli import main

main()
