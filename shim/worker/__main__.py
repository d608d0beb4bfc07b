"""The program that swapnet-engine --worker becomes: python DIRECTORY SOCKET BUFFER."""
import sys

from swapnet_worker import server

sys.exit(server.main(*map(int, sys.argv[1:3])))
